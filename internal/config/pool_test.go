package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

func TestPools(t *testing.T) {
	a, err := ParseAgent([]byte(`
[shapes.large]
cpus = 8
[pools.work]
about = "look around"
groups = ["staff"]
image = "el9"
shape = "large"
shapes = ["*"]
binds = ["/cvmfs:ro"]
home = true
max_memory = "4G"
idle = "1h"
total = "12h"
at_once = 4
per_user = 1
[pools.batch]
image = "el9"
batch = "slurm"
options = ["-p", "x"]
detach = false
`), "agent.toml")
	if err != nil || len(a.Pools) != 2 {
		t.Fatalf("%v, %v", a.Pools, err)
	}
	batch, work := a.Pools[0], a.Pools[1]
	if batch.Name != "batch" || batch.Batch != farm.Slurm || batch.Detach ||
		!slices.Equal(batch.Rule.Systems, []string{"slurm"}) {
		t.Errorf("%+v", batch)
	}
	if r := work.Rule; r.Name != "pool work" || !slices.Equal(r.Images, []string{"el9"}) ||
		!slices.Equal(r.Shapes, []string{"*"}) || !slices.Equal(r.Systems, []string{"none"}) ||
		r.MaxMemory != 4*farm.GiB || len(r.Networks) > 0 {
		t.Errorf("%+v", r)
	}
	if work.Idle != time.Hour || work.Total != 12*time.Hour || !work.Detach || !work.Home {
		t.Errorf("%+v", work)
	}
	if v := work.View(); v.Idle != 3600 || v.PerUser != 1 || v.AtOnce != 4 || v.Image != "el9" || v.About == "" {
		t.Errorf("%+v", v)
	}
}

func TestPoolsRefused(t *testing.T) {
	for text, says := range map[string]string{
		"[pools.A]":                                                "pools.A: invalid name",
		"[pools.a]\nidle = \"1s\"":                                 "idle: expected 10s",
		"[pools.a]\ntotal = \"-1h\"":                               "total: expected 10s",
		"[pools.a]\nshape = \"none\"":                              "is not below [shapes]",
		"[pools.a]\nnetwork = \"none-such\"":                       "is not below [networks]",
		"[pools.a]\nbinds = [\"data\"]":                            "binds: ",
		"[pools.a]\nusers = [\"[\"]":                               "invalid pattern",
		"[pools.a]\nbatch = \"lsf\"":                               "batch: invalid value",
		"[pools.a]\nbatch = \"slurm\"":                             "image: a job",
		"[pools.a]\noptions = [\"-p\"]":                            "options: ",
		"[pools.a]\nper_user = -1":                                 "per_user: ",
		"[pools.a]\nimage = \"x\"\nbatch = \"slurm\"\nat_once = 1": "the batch system counts",
	} {
		if _, err := ParseAgent([]byte(text), "agent.toml"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", text, err, says)
		}
	}
}
