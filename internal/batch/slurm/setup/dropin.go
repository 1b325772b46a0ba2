package setup

import (
	"os"
	"path/filepath"
)

const (
	dropInDir = "/etc/systemd/system/slurmd.service.d"
	maskSu    = "BindReadOnlyPaths=/bin/false:/usr/bin/su"
)

// dropIn keeps slurmd from starting login shells of users; see checkUserEnv.
const dropIn = mark + "# Without it sbatch --get-user-env, and --export with anything but ALL, run the profile of " +
	"the job's user on this host.\n[Service]\n" + maskSu + "\n"

func (i Install) dropInFile() string { return filepath.Join(dropInDir, "grange-no-su.conf") }

// masksSu reports whether this installation keeps all jobs of users off a host whose slurmd systemd starts.
func (i Install) masksSu() bool {
	if i.Default == "" || i.Metal || i.Submit || i.OCI || filepath.Clean(i.ConfDir) != "/etc/slurm" {
		return false
	}
	for _, dir := range []string{"/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"} {
		if _, err := os.Stat(i.file(filepath.Join(dir, "slurmd.service"))); err == nil {
			return true
		}
	}
	return false
}
