package allotment

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
)

func anyNode(string) bool { return true }

// wantRunning compares with lines "JOB CPUS BYTES".
func wantRunning(t *testing.T, files fs.FS, counts func(string) bool, want ...string) {
	t.Helper()
	var got []string
	for _, a := range Running(files, counts) {
		if a.System != farm.Slurm {
			t.Errorf("%+v", a)
		}
		got = append(got, fmt.Sprintf("%s %v %d", a.Job, a.CPUs, a.Memory))
	}
	if !slices.Equal(got, want) {
		t.Errorf("running are %q, want %q", got, want)
	}
}

func TestRunningVersion1(t *testing.T) {
	files := readTree(t, "testdata/slurm-22.05-v1-running.txt")
	var nodes []string
	wantRunning(t, files, func(node string) bool { nodes = append(nodes, node); return true }, "1 0 629145600")
	if !slices.Equal(nodes, []string{"bn1", "bn1"}) {
		t.Errorf("nodes %q", nodes)
	}
	wantRunning(t, files, func(string) bool { return false })

	// A slurmstepd that was killed leaves its groups; they hold nothing.
	for name := range files.MapFS {
		if strings.HasSuffix(name, "cgroup.procs") {
			files.MapFS[name].Data = nil
		}
	}
	wantRunning(t, files, anyNode)
	// The job's user owns the step's groups, and may fill them with more than anybody should walk.
	for i := range 600 {
		files.MapFS[fmt.Sprintf("sys/fs/cgroup/memory/slurm_bn1/uid_65534/job_1/step_batch/task_0/x%d/cgroup.procs",
			i)] = &fstest.MapFile{Mode: 0o644}
	}
	wantRunning(t, files, anyNode, "1  629145600")
}

func TestRunningVersion2(t *testing.T) {
	const scope = "sys/fs/cgroup/system.slice/slurmstepd.scope/"
	tree := func(text string) tree { return parseTree(t, strings.ReplaceAll(text, "$S/", scope)) }
	files := tree(`-- $S/job_42/cpuset.cpus --
2-3
-- $S/job_42/memory.max --
2097152000
-- $S/job_42/cgroup.events --
populated 1
frozen 0
-- $S/job_43/cpuset.cpus --

-- $S/job_43/cpuset.cpus.effective --
0-7
-- $S/job_43/memory.max --
max
-- $S/job_43/cgroup.events --
populated 1
frozen 1
-- $S/job_44/cpuset.cpus --
4
-- $S/job_44/cgroup.events --
populated 0
frozen 0
-- sys/fs/cgroup/system.slice/n2_slurmstepd.scope/job_7/cpuset.cpus --
6
-- sys/fs/cgroup/system.slice/n2_slurmstepd.scope/job_7/cgroup.events --
populated 1
-- $S/system/cgroup.events --
populated 1
-- $S/job_x/cgroup.events --
populated 1
-- sys/fs/cgroup/system.slice/ssh.service/job_9/cpuset.cpus --
5
`)
	wantRunning(t, files, anyNode, "42 2-3 2097152000", "43  0", "7 6 0")
	wantRunning(t, files, func(node string) bool { return node == "n2" }, "7 6 0")

	// Who was handed a group may make others in it, and hold nothing by that.
	wantRunning(t, tree(`-- $S/ uid=1000 --
-- $S/job_42/cpuset.cpus --
2-3
-- $S/job_42/cgroup.events --
populated 1
`), anyNode)
	wantRunning(t, parseTree(t, ""), anyNode)
}
