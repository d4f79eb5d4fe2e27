"""What can be done for Graphcore's IPUs without one: check a step against what PopTorch 3.4 lowers,
and write it out as a folder that runs there. Nothing here has been run on an IPU.
"""
