"""JupyterHub's servers in virtual machines of grange: docs/guide/jupyterhub.md."""
