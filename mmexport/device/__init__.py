"""Find every tensor on the wrong device, before export and in files."""
from .audit import audit_model
from .findings import Audit, Branch, Finding, Place
from .fix import devices_fixed

__all__ = ['Audit', 'Branch', 'Finding', 'Place', 'audit_model', 'devices_fixed']
