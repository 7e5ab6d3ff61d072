"""Diagnose a failed format: the smallest module that fails, the line, the cause and the remedy."""
from .diagnosis import Diagnosis
from .session import DiagnosisSession

__all__ = ['DiagnosisSession', 'Diagnosis']
