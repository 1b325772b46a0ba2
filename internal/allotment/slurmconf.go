package allotment

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// SlurmConf is the path of slurm.conf that the daemon above a process of a Slurm job was started with; "" when that
// says nothing, which is where Slurm's programs look by themselves. The job's own environment may name a file of the
// user's: a plug-in from there would run.
func SlurmConf(files fs.FS, pid int) string {
	p, err := read(files, pid)
	if err != nil {
		return ""
	}
	stepd, ok := p.Daemon(slurmstepd...)
	if !ok {
		return ""
	}
	env, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/environ", stepd.PID))
	if err != nil {
		return ""
	}
	for kv := range strings.SplitSeq(string(env), "\x00") {
		if conf, ok := strings.CutPrefix(kv, "SLURM_CONF="); ok && path.IsAbs(conf) && path.Clean(conf) == conf {
			return conf
		}
	}
	return ""
}
