package runner

import "testing"

func TestScriptOf(t *testing.T) {
	for _, c := range []struct {
		argv []string
		line string
		want string
	}{
		{[]string{"/var/spool/slurmd/job00005/slurm_script", "x"}, "", "/var/spool/slurmd/job00005/slurm_script"},
		{[]string{"./tool"}, "", "/work/tool"},
		{[]string{"hostname"}, "", ""},
		{[]string{"/bin/sh", "/home/ann/.lsbatch/17.3.shell"}, "", "/home/ann/.lsbatch/17.3.shell"},
		{[]string{"/bin/sh", "-c", "a/b"}, "", "/bin/sh"},
		{[]string{"/bin/bash"}, "/var/spool/pbs/mom_priv/jobs/7.SC", "/var/spool/pbs/mom_priv/jobs/7.SC"},
	} {
		if got := scriptOf(c.argv, c.line, "/work"); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.argv, c.line, got, c.want)
		}
	}
}
