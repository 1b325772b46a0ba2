// Package slurm holds the source of the SPANK plug-in. It is compiled where it is used: Slurm loads plug-ins of its own
// release only.
package slurm

import _ "embed"

// Source is the plug-in, grange_spank.c.
//
//go:embed spank/grange_spank.c
var Source []byte
