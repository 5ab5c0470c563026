"""Localization of the module of a model that goes wrong."""

from .diagnosing import diagnose
from .reports import Diagnosis, ModuleDiagnosis, Status

__all__ = ["Diagnosis", "ModuleDiagnosis", "Status", "diagnose"]
