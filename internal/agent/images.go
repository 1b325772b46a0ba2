package agent

import (
	"fmt"
	"net/http"
	"path/filepath"
	"runtime/debug"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

func imageView(i vmimage.Image) api.Image {
	return api.Image{Name: i.Name, Kind: string(i.Kind), Digest: i.Digest, Size: uint64(i.Size), Created: i.Created,
		Note: i.Description, Site: i.Site}
}

func (a routes) getImages(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	list, err := a.images.List()
	if err != nil {
		return err
	}
	out := []api.Image{}
	for _, i := range list {
		out = append(out, imageView(i))
	}
	return answer(w, out)
}

// postImage builds the micro image, or imports a file or directory. Images are for every user of the host: only
// administrators change them.
func (a routes) postImage(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !c.admin() {
		return onlyAdmin("change images")
	}
	var request api.ImageRequest
	if err := a.decode(w, r, c, &request); err != nil {
		return err
	}
	if err := vmimage.CheckName(request.Name); err != nil {
		return err
	}
	if request.Path != "" && !filepath.IsAbs(request.Path) {
		return badRequest("path %q is not absolute", request.Path)
	}
	send := lines[api.ImageEvent](w)
	progress := func(message string) { send(api.ImageEvent{Message: message}) }
	var image vmimage.Image
	var err error
	if request.Path == "" {
		image, err = a.images.BuildMicro(r.Context(),
			vmimage.BuildOptions{Name: request.Name, GuestBinary: a.guestFile, Packages: request.Packages,
				Progress: progress})
	} else {
		image, err = a.images.Import(r.Context(), request.Name, request.Path, percent(progress))
	}
	if err == nil && request.Site {
		image, err = a.images.Vouch(request.Name)
	}
	debug.FreeOSMemory() // building held whole packages in memory
	if err != nil {
		return send(api.ImageEvent{Problem: problemOf(err)})
	}
	a.log.Info("image ready", "image", image.Name, "digest", image.Digest, "site", image.Site, "uid", c.UID)
	view := imageView(image)
	return send(api.ImageEvent{Image: &view})
}

// percent tells of a copy at every tenth.
func percent(progress func(string)) func(done, total farm.Bytes) {
	told := -1
	return func(done, total farm.Bytes) {
		if total == 0 {
			return
		}
		if tenth := int(10 * float64(done) / float64(total)); tenth > told {
			told = tenth
			progress(fmt.Sprintf("copied %d %%", 10*tenth))
		}
	}
}

func (a routes) deleteImage(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !c.admin() {
		return onlyAdmin("remove images")
	}
	name := r.PathValue("name")
	if err := a.images.Remove(name, a.imageInUse); err != nil {
		return err
	}
	a.log.Info("image removed", "image", name, "uid", c.UID)
	return answer(w, api.Image{Name: name})
}

func (a *Agent) imageInUse(digest string) bool {
	for _, v := range a.all() {
		if v.recordNow().Digest == digest {
			return true
		}
	}
	return a.Cloud.UsesImage(digest)
}

func onlyAdmin(what string) error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotYours,
		Message: "only an administrator of this host may " + what, Hint: "ask root"}
}
