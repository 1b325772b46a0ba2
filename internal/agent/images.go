package agent

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime/debug"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

func imageView(i vmimage.Image) api.Image {
	view := api.Image{Name: i.Name, Kind: string(i.Kind), Digest: i.Digest, Size: uint64(i.Size), Created: i.Created,
		Note: i.Description, Site: i.Site, Source: i.Source, SignedBy: i.SignedBy, Successor: i.Mark.Successor,
		Reason: i.Mark.Reason, Pinned: i.Mark.Pinned}
	if i.Mark.State != vmimage.Active {
		view.State = string(i.Mark.State)
	}
	return view
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

// postImage builds the micro image, imports a file or directory, or fetches an image from its source. Images are for
// every user of the host: only administrators change them.
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
	image, err := a.makeImage(r.Context(), request, progress)
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

func (a routes) makeImage(ctx context.Context, r api.ImageRequest, progress func(string)) (vmimage.Image, error) {
	switch {
	case r.Path != "" && r.Source != "":
		return vmimage.Image{}, badRequest("an image has a path or a source, not both")
	case r.Path != "":
		return a.images.Import(ctx, r.Name, r.Path, percent("copied", progress))
	case r.Source != "":
		return a.images.Fetch(ctx, vmimage.FetchOptions{Name: r.Name, Source: r.Source, Sum: r.Sum, Sums: r.Sums,
			Signature: r.Signature, Keyring: r.Keyring, Progress: steps(progress)})
	}
	return a.images.BuildMicro(ctx, vmimage.BuildOptions{Name: r.Name, GuestBinary: a.guestFile,
		Packages: r.Packages, Progress: progress})
}

// percent reports a copy at every tenth.
func percent(done string, progress func(string)) func(done, total farm.Bytes) {
	told := -1
	return func(n, total farm.Bytes) {
		if total == 0 {
			return
		}
		if tenth := int(10 * float64(n) / float64(total)); tenth > told {
			told = tenth
			progress(fmt.Sprintf("%s %d %% of %s", done, 10*tenth, total))
		}
	}
}

// steps reports a fetch: each step, its tenths, and why nothing comes.
func steps(progress func(string)) func(vmimage.Progress) {
	texts := map[string]string{"download": "downloading", "verify": "verifying the checksum", "import": "importing"}
	step, tenths := "", func(n, total farm.Bytes) {}
	return func(p vmimage.Progress) {
		if p.Step != step {
			step, tenths = p.Step, percent(p.Step+":", progress)
			progress(texts[step])
		}
		if p.Note != "" {
			progress(p.Note)
		}
		tenths(p.Done, p.Total)
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

func (a *Agent) imageInUse(digest string) bool { return len(a.usersOfImage(digest)) > 0 }

// usersOfImage are the VMs that read from an image.
func (a *Agent) usersOfImage(digest string) []string {
	var names []string
	for _, v := range a.all() {
		if r := v.recordNow(); r.Digest == digest {
			names = append(names, r.Name)
		}
	}
	return append(names, a.Cloud.UsersOfImage(digest)...)
}

func onlyAdmin(what string) error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotYours,
		Message: "only an administrator of this host may " + what, Hint: "ask root"}
}
