"""Pictures: computation graphs, attention weights as heatmaps, and every number of an attention on one page."""

from .graph import draw_graph
from .heatmap import heatmap
from .microscope import Microscope, microscope

__all__ = ["Microscope", "draw_graph", "heatmap", "microscope"]
