package agent

import (
	"cmp"
	"errors"
	"runtime/debug"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/catalogue"
	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

var errNoRoots = errors.New("its grange-guest knows no other roots")

// mayFetch refuses a job an image that is not its caller's to have fetched. It returns the entry of pull_images that
// allows it.
func mayFetch(a requests, c Caller, r *api.JobRequest, image string, memory farm.Bytes) (entry string, err error) {
	err = a.Images.MayRun(cmp.Or(image, a.config().DefaultImage), memory, c.admin())
	if err != nil || !container.Is(image) {
		return "", err
	}
	return catalogue.MayFetch(a.images, a.config(), catalogue.Wish{Image: image, Chosen: r.Image == "", Pull: r.Pull,
		Admin: c.admin()})
}

// fetchImage brings the image of a VM to this host: one of the fleet's catalogue, or that of a reference that is not
// known here yet, or is to be looked up anew.
func fetchImage(v *vm) error {
	if !container.Is(v.image) {
		return v.agent.Images.Bring(v.ctx, v.image, v.publishWaiting)
	}
	anew := v.request != nil && v.request.Pull
	if _, err := v.agent.images.Get(v.image); !anew && !farm.IsCode(err, farm.CodeNoImage) {
		return err
	}
	began := time.Now()
	v.agent.Images.MakeRoom()
	entry := v.recordNow().PullEntry
	_, err := v.agent.images.FetchReference(v.ctx, vmimage.FetchOptions{Source: v.image,
		Resolve: catalogue.Resolve(entry), Outside: catalogue.Outside(entry),
		Progress: catalogue.InWords(v.image, v.publishWaiting)})
	debug.FreeOSMemory() // of a tree of many files
	if err != nil {
		return err
	}
	v.log().Info("image fetched", "image", v.image, "user", v.recordNow().User)
	v.phase("fetch", began)
	return nil
}
