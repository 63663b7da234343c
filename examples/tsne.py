"""Points of many dimensions on a plane, with neighbours together (t-SNE).

`python -m examples.tsne` prints:

    neighbours of one group: 100%
"""

from mithril.examples.tsne import Embedding, embed, main

__all__ = ["Embedding", "embed", "main"]

if __name__ == "__main__":
    main()
