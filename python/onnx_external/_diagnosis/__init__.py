"""Finds the first module of a model with wrong outputs."""

from .diagnosing import diagnose
from .reports import Diagnosis, ModuleDiagnosis, Status

__all__ = ["Diagnosis", "ModuleDiagnosis", "Status", "diagnose"]
