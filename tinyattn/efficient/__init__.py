"""The attacks on n²."""

from .tiles import *
