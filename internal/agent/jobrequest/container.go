package jobrequest

import (
	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/vmimage"
)

// RootSerial is of the disk with the root file system of a container.
const RootSerial = "root"

// CheckCommand refuses a request without a command where the image has none either.
func CheckCommand(bare bool, image vmimage.Image) error {
	if !bare || image.Config != nil && len(image.Config.Command()) > 0 {
		return nil
	}
	return bad("no command, and image %q names none", image.Name)
}

// InContainer completes a job by what its image's configuration says. It is pure.
func InContainer(g *guest.Job, r *api.JobRequest, image vmimage.Image) {
	if image.Kind != vmimage.Root {
		return
	}
	c := container.Config{}
	if image.Config != nil {
		c = *image.Config
	}
	g.Root = &guest.Root{Serial: RootSerial, Format: image.Format, Workdir: c.Workdir}
	g.Env = c.Environment(g.Env)
	if len(g.Argv) == 0 {
		g.Argv = c.Command()
	}
	if r.DefaultDir && c.Workdir != "" {
		g.Dir = c.Workdir
	}
}
