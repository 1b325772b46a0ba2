package jobrequest

import (
	"slices"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/vmimage"
)

func TestInContainer(t *testing.T) {
	image := vmimage.Image{Kind: vmimage.Root, Format: "erofs", Config: &container.Config{Env: []string{"A=i", "B=i"},
		Entrypoint: []string{"/entry"}, Cmd: []string{"arg"}, Workdir: "/work"}}
	g := guest.Job{Dir: "/tmp", Env: []string{"B=c"}}
	InContainer(&g, &api.JobRequest{DefaultDir: true}, image)
	root := guest.Root{Serial: RootSerial, Format: "erofs", Workdir: "/work"}
	if g.Root == nil || *g.Root != root || g.Dir != "/work" ||
		!slices.Equal(g.Argv, []string{"/entry", "arg"}) || !slices.Contains(g.Env, "A=i") ||
		slices.Contains(g.Env, "B=i") {
		t.Errorf("%+v", g)
	}
	g = guest.Job{Dir: "/here", Argv: []string{"cmd"}}
	InContainer(&g, &api.JobRequest{}, image)
	if g.Dir != "/here" || !slices.Equal(g.Argv, []string{"cmd"}) {
		t.Errorf("%+v", g)
	}
	g = guest.Job{Dir: "/here"}
	InContainer(&g, &api.JobRequest{DefaultDir: true}, vmimage.Image{Kind: vmimage.Kernel})
	if g.Root != nil || g.Dir != "/here" {
		t.Errorf("%+v", g)
	}
}

func TestCommandOfImage(t *testing.T) {
	with := vmimage.Image{Kind: vmimage.Root, Config: &container.Config{Cmd: []string{"x"}}}
	if err := CheckCommand(true, with); err != nil {
		t.Error(err)
	}
	for _, i := range []vmimage.Image{{Kind: vmimage.Kernel}, {Kind: vmimage.Root, Config: &container.Config{}}} {
		if err := CheckCommand(true, i); !farm.IsCode(err, farm.CodeBadRequest) {
			t.Error(err)
		}
		if err := CheckCommand(false, i); err != nil {
			t.Error(err)
		}
	}
}
