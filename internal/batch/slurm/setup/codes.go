package setup

import "github.com/grange-project/grange/internal/farm"

// Codes of errors of setting Slurm up; see docs/errors.md.
const (
	CodeNoCompiler   farm.Code = "no-compiler"  // nothing here compiles C
	CodeNoHeaders    farm.Code = "no-headers"   // Slurm's headers are not here
	CodeNotCompiled  farm.Code = "not-compiled" // the compiler refuses the plug-in
	CodeNoSlurm      farm.Code = "no-slurm"     // no slurmd here, or it does not say its version
	CodeBadSlurmConf farm.Code = "bad-slurm-conf"
	CodeNoPlugin     farm.Code = "plugin-not-loaded" // Slurm would not load our plug-in for a job
)
