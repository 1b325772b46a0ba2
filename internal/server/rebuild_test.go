package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

// TestRebuildShape: a rebuild gives a VM what the other image asks for, or is refused with the reason.
func TestRebuildShape(t *testing.T) {
	const other = "sha256:" + "1111111111111111111111111111111111111111111111111111111111111111"
	for name, c := range map[string]struct {
		old, properties map[string]string
		refused         bool // on its host
	}{
		"nothing asked": {nil, nil, false},
		"a site's note": {nil, map[string]string{"owner": "ann"}, false},
		"model":         {nil, map[string]string{"hw_cpu_model": "host-model"}, false},
		"another model": {map[string]string{"hw_cpu_model": "EPYC"}, map[string]string{"hw_cpu_model": "host-model"}, false},
		"display":       {nil, map[string]string{"hw_video_model": "vga"}, false},
		"cells":         {nil, map[string]string{"hw_numa_nodes": "2"}, true},
		"thread policy": {nil, map[string]string{"hw_cpu_thread_policy": "isolate"}, true},
		"topology":      {nil, map[string]string{"hw_cpu_sockets": "2"}, true},
		"all three": {nil, map[string]string{"hw_numa_nodes": "2", "hw_cpu_thread_policy": "isolate",
			"hw_cpu_model": "host-model"}, true},
		"the same of both": {map[string]string{"hw_numa_nodes": "2"}, map[string]string{"hw_numa_nodes": "2"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			h := l.machine("wn-1", "east")
			l.catalogued("old", oldDebian, func(i *farm.FleetImage) { i.Properties = c.old })
			l.catalogued("new", newDebian, func(i *farm.FleetImage) { i.Properties = c.properties })
			l.catalogued("plain", other, nil)
			in := func(name, image string) CreateVM {
				return CreateVM{Project: "alice", Name: name, Image: image, CPUs: 2, Memory: 2 * farm.GiB}
			}
			v := l.running(ann, in("web", "old"), h)
			waits := l.create(ann, in("waits", "old"))[0]
			want := l.create(ann, in("new", "new"))[0].Shape
			got, err := l.VMs.Rebuild(t.Context(), ann, v.ID, 0, "new")
			switch {
			case c.refused:
				if code(err) != CodeImageShape {
					t.Errorf("on its host: %v, %+v", err, got.Shape)
				}
			case err != nil || cmp.Diff(want, got.Shape) != "":
				t.Errorf("on its host: %v\n%s", err, cmp.Diff(want, got.Shape))
			}
			got, err = l.VMs.Rebuild(t.Context(), ann, waits.ID, 0, "new")
			if err != nil || cmp.Diff(want, got.Shape) != "" {
				t.Errorf("without a host: %v\n%s", err, cmp.Diff(want, got.Shape))
			}
			if _, err := l.VMs.Rebuild(t.Context(), ann, v.ID, 0, "plain"); err != nil {
				t.Errorf("from an image that asks for nothing: %v", err)
			}
		})
	}
}
