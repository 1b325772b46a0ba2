package agent

import (
	"net/http"
	"runtime/debug"
	"slices"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/catalogue"
	"github.com/grange-project/grange/internal/farm"
)

// imageRoutes are the routes of images: of all users' to read, and of administrators' to change.
type imageRoutes struct {
	routes
	*catalogue.Catalogue
}

func newImageRoutes(a *Agent) imageRoutes {
	return imageRoutes{routes{a}, &catalogue.Catalogue{Images: a.images, GuestFile: a.guestFile, Users: a.usersOfImage,
		Transfers: a.transfers}}
}

// actions are those routes. Who uses an image is known when it is known what runs.
func (a imageRoutes) actions() map[string]action {
	return map[string]action{
		"GET /v1/images":               a.list,
		"POST /v1/images":              onlyAdmins("change images", a.post),
		"GET /v1/images/{ref}":         a.known(a.show),
		"POST /v1/images/{ref}/mark":   a.known(onlyAdmins("change images", a.mark)),
		"POST /v1/images/{ref}/tag":    a.known(onlyAdmins("change images", a.tag)),
		"POST /v1/images/{ref}/verify": a.known(onlyAdmins("verify images", a.verify)),
		"POST /v1/images-purge":        a.known(onlyAdmins("remove images", a.purge)),
		"DELETE /v1/images/{ref}":      a.known(onlyAdmins("remove images", a.remove)),
	}
}

// onlyAdmins refuses all but administrators of this host to do what.
func onlyAdmins(what string, do action) action {
	return func(w http.ResponseWriter, r *http.Request, c Caller) error {
		if !c.admin() {
			return onlyAdmin(what)
		}
		return do(w, r, c)
	}
}

func (a imageRoutes) list(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	return answerOr(w)(a.List())
}

// answerOr answers with a value, unless there is an error.
func answerOr(w http.ResponseWriter) func(any, error) error {
	return func(v any, err error) error {
		if err != nil {
			return err
		}
		return answer(w, v)
	}
}

// show names only the VMs that the caller may see.
func (a imageRoutes) show(w http.ResponseWriter, r *http.Request, c Caller) error {
	i, err := a.Show(r.PathValue("ref"))
	if !a.maySee(c, nobody) {
		seen := map[string]bool{}
		for _, v := range a.all() {
			seen[v.recordNow().Name] = c.sees(v)
		}
		i.VMs = slices.DeleteFunc(i.VMs, func(name string) bool { return !seen[name] })
	}
	return answerOr(w)(i, err)
}

func (a imageRoutes) post(w http.ResponseWriter, r *http.Request, c Caller) error {
	var request api.ImageRequest
	if err := a.decode(w, r, c, &request); err != nil {
		return err
	}
	if err := catalogue.Check(request); err != nil {
		return err
	}
	send := lines[api.ImageEvent](w)
	image, err := a.Make(r.Context(), request, func(message string) { send(api.ImageEvent{Message: message}) })
	debug.FreeOSMemory() // building held whole packages in memory
	if err != nil {
		return send(api.ImageEvent{Problem: problemOf(err)})
	}
	a.log.Info("image ready", "image", image.Name, "digest", image.Digest, "site", image.Site, "uid", c.UID)
	return send(api.ImageEvent{Image: &image})
}

func (a imageRoutes) mark(w http.ResponseWriter, r *http.Request, c Caller) error {
	var request api.ImageMark
	if err := a.decode(w, r, c, &request); err != nil {
		return err
	}
	i, err := a.Mark(r.PathValue("ref"), request)
	if err == nil {
		a.log.Info("image marked", "image", i.Name, "digest", i.Digest, "state", i.State, "successor", i.Successor,
			"pinned", i.Pinned, "uid", c.UID)
	}
	return answerOr(w)(i, err)
}

func (a imageRoutes) tag(w http.ResponseWriter, r *http.Request, c Caller) error {
	var request api.Image
	if err := a.decode(w, r, c, &request); err != nil {
		return err
	}
	i, err := a.Tag(r.PathValue("ref"), request.Name)
	if err == nil {
		a.log.Info("image tagged", "image", i.Name, "digest", i.Digest, "uid", c.UID)
	}
	return answerOr(w)(i, err)
}

func (a imageRoutes) verify(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := a.Images.Verify(r.Context(), r.PathValue("ref")); err != nil {
		return err
	}
	return a.show(w, r, c)
}

func (a imageRoutes) purge(w http.ResponseWriter, r *http.Request, c Caller) error {
	var request api.ImagePurge
	if err := a.decode(w, r, c, &request); err != nil {
		return err
	}
	purged, err := a.Purge(request)
	for _, p := range purged {
		if !request.DryRun {
			a.log.Info("image purged", "names", p.Names, "digest", p.Digest, "reason", p.Reason, "uid", c.UID)
		}
	}
	return answerOr(w)(purged, err)
}

func (a imageRoutes) remove(w http.ResponseWriter, r *http.Request, c Caller) error {
	name := r.PathValue("ref")
	if err := a.Images.Remove(name, a.InUse); err != nil {
		return err
	}
	a.log.Info("image removed", "image", name, "uid", c.UID)
	return answer(w, api.Image{Name: name})
}

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
