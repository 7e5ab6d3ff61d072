"""When a format fails: the smallest module that fails, the line, the cause and what helps."""
from .consult import Consultation
from .finding import Diagnosis

__all__ = ['Consultation', 'Diagnosis']
