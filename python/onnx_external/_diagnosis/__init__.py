"""Finds the first module of a model whose outputs are wrong."""

from .diagnosing import diagnose
from .reports import Diagnosis, ModuleDiagnosis, Status

__all__ = ["Diagnosis", "ModuleDiagnosis", "Status", "diagnose"]
