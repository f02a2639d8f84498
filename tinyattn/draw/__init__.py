"""Pictures: computation graphs, and attention weights as heatmaps."""

from .graph import draw_graph
from .heatmap import heatmap

__all__ = ["draw_graph", "heatmap"]
