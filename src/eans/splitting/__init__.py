"""Train, valid and test from one set of triples: at random or by time, so that train covers what is held out."""

from eans.splitting.choosing import INVERSE, RATIOS, Splitting
from eans.splitting.splits import save_split, split, split_graph

__all__ = ["INVERSE", "RATIOS", "Splitting", "save_split", "split", "split_graph"]
