"""`recommend_backend`: which backend suits a model, and why."""

from mithril.inspection.recommendation import Recommendation, recommend_backend

__all__ = ["Recommendation", "recommend_backend"]
