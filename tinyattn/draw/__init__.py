"""Pictures and texts of a computation: its graph, its backward pass told, and attention weights as heatmaps."""

from .explain import explain
from .graph import draw_graph
from .heatmap import heatmap

__all__ = ["draw_graph", "explain", "heatmap"]
