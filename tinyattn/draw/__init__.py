"""Pictures and texts: a graph, its backward pass told, weights as heatmaps, every number of an attention on a page."""

from .explain import explain
from .graph import draw_graph
from .heatmap import heatmap
from .microscope import Microscope, microscope

__all__ = ["Microscope", "draw_graph", "explain", "heatmap", "microscope"]
