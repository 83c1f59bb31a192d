"""Virtual machines that boot a distribution kernel with the files of this machine."""
