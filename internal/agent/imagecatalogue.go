package agent

import (
	"net/http"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

func (a routes) getImage(w http.ResponseWriter, r *http.Request, _ Caller) error {
	i, err := a.images.Get(r.PathValue("ref"))
	if err != nil {
		return err
	}
	return a.answerImage(w, i)
}

// answerImage answers with an image, what its name has meant, and who uses it.
func (a routes) answerImage(w http.ResponseWriter, i vmimage.Image) error {
	details := api.ImageDetails{Image: imageView(i), VMs: a.usersOfImage(i.Digest)}
	if i.Name != "" {
		history, err := a.images.History(i.Name)
		if err != nil {
			return err
		}
		for _, v := range history {
			_, err := a.images.Get(v.Digest)
			details.Versions = append(details.Versions,
				api.ImageVersion{Digest: v.Digest, Since: v.Since, Stored: err == nil})
		}
	}
	return answer(w, details)
}

// postImageMark changes the state of an image. The answer names the VMs that use it: a withdrawn image ends none.
func (a routes) postImageMark(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !c.admin() {
		return onlyAdmin("change images")
	}
	var request api.ImageMark
	if err := a.decode(w, r, c, &request); err != nil {
		return err
	}
	change, err := markChange(request)
	if err != nil {
		return err
	}
	i, err := a.images.SetMark(r.PathValue("ref"), change)
	if err != nil {
		return err
	}
	a.log.Info("image marked", "image", i.Name, "digest", i.Digest, "state", i.Mark.State,
		"successor", i.Mark.Successor, "pinned", i.Mark.Pinned, "uid", c.UID)
	return a.answerImage(w, i)
}

func markChange(request api.ImageMark) (func(*vmimage.Mark), error) {
	if s := request.State; s != nil {
		switch vmimage.State(*s) {
		case vmimage.Active, vmimage.Deprecated, vmimage.Withdrawn:
		default:
			return nil, badRequest("invalid state %q of an image: active, deprecated or withdrawn", *s)
		}
	}
	return func(m *vmimage.Mark) {
		if s := request.State; s != nil {
			m.State = vmimage.State(*s)
			m.Successor, m.Reason = "", "" // they were of the state before
		}
		if s := request.Successor; s != nil {
			m.Successor = *s
		}
		if s := request.Reason; s != nil {
			m.Reason = *s
		}
		if p := request.Pinned; p != nil {
			m.Pinned = *p
		}
	}, nil
}

func (a routes) postImageTag(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !c.admin() {
		return onlyAdmin("change images")
	}
	var request api.Image
	if err := a.decode(w, r, c, &request); err != nil {
		return err
	}
	i, err := a.images.Tag(r.PathValue("ref"), request.Name)
	if err != nil {
		return err
	}
	a.log.Info("image tagged", "image", i.Name, "digest", i.Digest, "uid", c.UID)
	return a.answerImage(w, i)
}

func (a routes) postImageVerify(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !c.admin() {
		return onlyAdmin("verify images") // it reads gigabytes
	}
	if err := a.images.Verify(r.Context(), r.PathValue("ref")); err != nil {
		return err
	}
	return a.getImage(w, r, c)
}

func (a routes) postImagesPurge(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !c.admin() {
		return onlyAdmin("remove images")
	}
	var request api.ImagePurge
	if err := a.decode(w, r, c, &request); err != nil {
		return err
	}
	const most = int64(100 * 365 * 24 * time.Hour / time.Second)
	if request.UnusedSeconds < 0 || request.UnusedSeconds > most {
		return badRequest("invalid time without use: %d s", request.UnusedSeconds)
	}
	purged, err := a.images.Purge(vmimage.PurgeOptions{InUse: a.imageInUse, DryRun: request.DryRun,
		Unused: time.Duration(request.UnusedSeconds) * time.Second, Free: farm.Bytes(request.Free)})
	view := []api.ImagePurged{}
	for _, p := range purged {
		view = append(view, api.ImagePurged{Names: p.Names, Digest: p.Digest, Size: uint64(p.Size),
			LastUsed: p.LastUsed, Reason: p.Reason})
		if !request.DryRun {
			a.log.Info("image purged", "names", p.Names, "digest", p.Digest, "reason", p.Reason, "uid", c.UID)
		}
	}
	if err != nil {
		return err
	}
	return answer(w, view)
}
