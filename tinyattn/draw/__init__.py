"""Pictures and texts: a graph, its backward pass in words, weights as heatmaps, an attention's numbers on a page."""

from .explain import explain
from .graph import draw_graph
from .heatmap import heatmap
from .microscope import Microscope, microscope

__all__ = ["Microscope", "draw_graph", "explain", "heatmap", "microscope"]
