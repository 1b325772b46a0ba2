// Package slurm holds the source of the SPANK plug-in. It is compiled where it is used: Slurm loads plug-ins of its own
// release only.
package slurm

import _ "embed"

// Source is the plug-in, grange_spank.c.
//
//go:embed spank/grange_spank.c
var Source []byte

// CLIFilter is the script by which a job's comment names the image that it asks for, as docs/guide/slurm.md has it.
//
//go:embed cli_filter.lua
var CLIFilter string
