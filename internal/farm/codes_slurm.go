package farm

// Errors of setting Slurm up.
const (
	CodeNoCompiler   Code = "no-compiler"  // nothing here compiles C
	CodeNoHeaders    Code = "no-headers"   // Slurm's headers are not here
	CodeNotCompiled  Code = "not-compiled" // the compiler refuses the plug-in
	CodeNoSlurm      Code = "no-slurm"     // no slurmd here, or it does not say its version
	CodeBadSlurmConf Code = "bad-slurm-conf"
	CodeNoPlugin     Code = "plugin-not-loaded" // Slurm would not load our plug-in for a job
)
