// Package jupyterhub tests the Python package beside it, which JupyterHub loads.
package jupyterhub
