// Package setup has what puts HTCondor's wrapper in the place of jobs: the files of its configuration, what the hooks
// that they name print, and the check of all of them. It starts nothing but condor_config_val.
package setup
