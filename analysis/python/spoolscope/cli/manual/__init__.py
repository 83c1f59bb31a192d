"""One source of help: the commands as pages, from which --help, man pages and the site are made."""
