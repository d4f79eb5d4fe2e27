"""One file per source of data: how it is read, and the facts about it."""
