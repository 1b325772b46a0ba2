package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/server/images"
	"github.com/grange-project/grange/internal/wire"
)

// imageRoutes are the routes of the catalogue of images.
type imageRoutes struct{ *API }

// ImageRef names an image in a path.
type ImageRef struct {
	Image string `path:"image" maxLength:"100" doc:"a name, a digest, or the first digits of one" example:"debian-12"`
}

// UploadRef names a file that is uploaded.
type UploadRef struct {
	Sum string `path:"sha256" minLength:"64" maxLength:"64" pattern:"^[0-9a-f]+$" doc:"of the whole file, in hex" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
}

// uploadPath takes pieces of files, which are larger than other bodies.
const uploadPath = "/v1/image-uploads/"

const imageTag = "images"

func (a imageRoutes) register() {
	handle(a.API, route{method: "GET", path: "/v1/images", id: "list-images", whole: true, tag: imageTag,
		summary: "List the images of the catalogue by their names, and those that hosts have of their own"}, a.list)
	handle(a.API, route{method: "GET", path: "/v1/images/{image}", id: "get-image", whole: true, tag: imageTag,
		summary: "One image: what its name has meant, which hosts have it, what runs of it"},
		func(ctx context.Context, who farm.Identity, in *struct{ ImageRef }) (*one[fleet.ImageDetails], error) {
			return answerImage(a.server.Images.Show(ctx, who, in.Image))
		})
	handle(a.API, route{method: "POST", path: "/v1/images/{image}/mark", id: "mark-image", tag: imageTag,
		summary: "Deprecate, withdraw or activate an image, under all its names",
		about:   "Nothing starts from a withdrawn image any more. What runs of it is left alone, and is in the answer."},
		func(ctx context.Context, who farm.Identity, in *struct {
			ImageRef
			Seen
			Body fleet.ImageMark
		}) (*one[fleet.ImageDetails], error) {
			return answerImage(a.server.Images.Mark(ctx, who, in.Image, in.seen,
				images.Mark{State: in.Body.State, Successor: in.Body.Successor, Reason: in.Body.Reason}))
		})
	handle(a.API, route{method: "POST", path: "/v1/images/{image}/tag", id: "tag-image", tag: imageTag,
		summary: "Give an image a name, which another one may have had"},
		func(ctx context.Context, who farm.Identity, in *struct {
			ImageRef
			Seen
			Body fleet.ImageTag
		}) (*one[fleet.ImageDetails], error) {
			return answerImage(a.server.Images.Tag(ctx, who, in.Image, in.seen, in.Body.Name))
		})
	handle(a.API, route{method: "DELETE", path: "/v1/images/{image}", id: "remove-image", tag: imageTag, status: 204,
		summary: "Remove a name, and with the last one the image; by a digest: the image with all names"},
		func(ctx context.Context, who farm.Identity, in *struct {
			ImageRef
			Seen
		}) (*nothing, error) {
			return &nothing{}, a.server.Images.Remove(ctx, who, in.Image, in.seen)
		})
	a.addRoute()
	a.uploadRoutes()
	a.rolloutRoutes()
	a.hostRoutes()
}

// list has the catalogue first, then what hosts have that is not in it.
func (a imageRoutes) list(ctx context.Context, who farm.Identity,
	in *struct{ Paging }) (*one[fleet.Page[fleet.Image]], error) {
	same := func(i fleet.Image) fleet.Image { return i }
	return listOf(ctx, a.API, in.Paging, same, func(i fleet.Image) string { return i.Name },
		func() ([]fleet.Image, error) {
			views, err := a.server.Images.List(ctx, who)
			if err != nil {
				return nil, err
			}
			hosts, err := a.server.Hosts.List(ctx, who, server.HostFilter{})
			return imagesOf(views, hosts), err
		})
}

// imagesOf counts who has what.
func imagesOf(views []images.View, hosts []server.HostView) []fleet.Image {
	count := map[string]int{}
	for _, h := range hosts {
		for _, image := range h.Facts.Images {
			count[image]++
		}
	}
	list := []fleet.Image{}
	for _, v := range views {
		v.Hosts = count[v.Digest]
		list = append(list, imageView(v))
		delete(count, v.Name)
	}
	for _, v := range views {
		delete(count, v.Digest)
	}
	for name, n := range count {
		list = append(list, fleet.Image{Name: name, Hosts: n})
	}
	return list
}

func imageView(v images.View) fleet.Image {
	return fleet.Image{Name: cmp.Or(v.Name, v.Digest), Hosts: v.Hosts, Catalogue: true, Digest: v.Digest, Kind: v.Kind,
		Format: v.Format, Size: uint64(v.Size), VirtualSize: uint64(v.VirtualSize), Note: v.Note, OS: v.OS,
		MinDisk: uint64(v.MinDisk), MinMemory: uint64(v.MinMemory), Properties: v.Properties, Projects: v.Projects,
		State: string(v.State), Successor: v.Successor, Reason: v.FleetImage.Reason, Source: v.Source,
		Verdict: v.Verdict, By: v.By, Created: timeOrNil(v.Created), Removed: v.Removed, Revision: v.Revision}
}

func detailsView(d images.Details) fleet.ImageDetails {
	out := fleet.ImageDetails{Image: imageView(d.View), Names: d.Names, Holders: d.Holders, VMs: d.VMs, Jobs: d.Jobs}
	for _, v := range d.Versions {
		out.Versions = append(out.Versions,
			fleet.ImageVersion{Digest: v.Digest, Since: v.Since.UTC(), By: v.By, Stored: v.Stored})
	}
	return out
}

func answerImage(d images.Details, err error) (*one[fleet.ImageDetails], error) {
	if err != nil {
		return nil, err
	}
	return oneOf(detailsView(d), d.Revision), nil
}

// addRoute answers with a line for each step, for a download takes long: the request is as long as it.
func (a imageRoutes) addRoute() {
	r := route{method: "POST", path: "/v1/images", id: "add-image", tag: imageTag,
		summary: "Add an image, from a source or from files that were uploaded",
		about: "The answer is lines of JSON, each an ImageEvent. What was downloaded stays when the request ends early; " +
			"the same request goes on from there."}
	op := a.operation(r)
	op.Responses["200"] = &huma.Response{Description: "Lines of JSON; the last has the image, or a problem",
		Content: map[string]*huma.MediaType{"application/x-ndjson": {
			Schema: a.schema(reflect.TypeFor[fleet.ImageEvent]())}}}
	register(a.API, r, op, func(_ context.Context, who farm.Identity,
		in *struct{ Body fleet.ImageRequest }) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(c huma.Context) { a.add(c, who, in.Body) }}, nil
	})
}

func (a imageRoutes) add(c huma.Context, who farm.Identity, r fleet.ImageRequest) {
	ctx, cancel := a.patient(c.Context())
	defer cancel()
	c.SetHeader("Content-Type", "application/x-ndjson")
	_, w := unwrap(c)
	send := func(e fleet.ImageEvent) {
		if json.NewEncoder(w).Encode(e) != nil {
			cancel() // nobody reads
		}
		http.NewResponseController(w).Flush()
	}
	send(fleet.ImageEvent{Message: "adding image " + r.Name})
	request := images.Request{Name: r.Name, Source: r.Source, Sum: r.Sum, Sums: r.Sums, Signature: r.Signature,
		Keyring: r.Keyring, Note: r.Note, OS: r.OS, MinDisk: farm.Bytes(r.MinDisk), MinMemory: farm.Bytes(r.MinMemory),
		Properties: r.Properties, Projects: r.Projects}
	for _, f := range r.Files {
		request.Files = append(request.Files, images.File{Name: f.Name, Sum: f.SHA256})
	}
	d, err := a.server.Images.Add(ctx, who, request, func(text string) { send(fleet.ImageEvent{Message: text}) })
	if err != nil {
		p := newProblem(err)
		if p.Status == http.StatusInternalServerError {
			a.log.Error("an image was not added", "image", r.Name, "user", who.User, "error", err)
		}
		send(fleet.ImageEvent{Problem: &api.Problem{Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail,
			Hint: p.Hint}})
		return
	}
	view := detailsView(d)
	send(fleet.ImageEvent{Image: &view})
}

func (a imageRoutes) uploadRoutes() {
	answer := func(sum string, n farm.Bytes, err error) (*one[fleet.Upload], error) {
		if err != nil {
			return nil, err
		}
		return oneOf(fleet.Upload{SHA256: sum, Received: uint64(n)}, 0), nil
	}
	handle(a.API, route{method: "GET", path: uploadPath + "{sha256}", id: "get-image-upload", tag: imageTag,
		summary: "How much of a file has come, to go on behind it"},
		func(ctx context.Context, who farm.Identity, in *struct{ UploadRef }) (*one[fleet.Upload], error) {
			n, err := a.server.Images.Received(ctx, who, in.Sum)
			return answer(in.Sum, n, err)
		})
	handle(a.API, route{method: "PUT", path: uploadPath + "{sha256}", id: "put-image-upload", tag: imageTag,
		summary: "Upload a piece of a file of an image",
		about: "Pieces have 4 MiB at most and come in their order; one that came already is passed over. With the last " +
			"one the file is compared with its checksum, and is there for add-image."},
		func(ctx context.Context, who farm.Identity, in *struct {
			UploadRef
			Offset  uint64 `query:"offset" maximum:"281474976710656" doc:"where the piece begins"`
			Size    uint64 `query:"size" minimum:"1" maximum:"281474976710656" required:"true" doc:"of the whole file"`
			RawBody []byte `contentType:"application/octet-stream"`
		}) (*one[fleet.Upload], error) {
			n, err := a.server.Images.Receive(ctx, who, in.Sum, farm.Bytes(in.Offset), farm.Bytes(in.Size), in.RawBody)
			return answer(in.Sum, n, err)
		})
}

func (a imageRoutes) rolloutRoutes() {
	order := func(verb string, op farm.ImageOp, summary string) {
		handle(a.API, route{method: "POST", path: "/v1/images:" + verb, id: verb + "-images", tag: imageTag,
			summary: summary, about: "It returns at once; `/v1/image-rollouts/{id}` returns how far hosts are."},
			func(ctx context.Context, who farm.Identity, in *struct {
				Once
				Body fleet.ImageRollout
			}) (*one[fleet.Rollout], error) {
				r, err := a.server.Images.Order(ctx, who, op, in.Body.Image, images.Choice{Cell: in.Body.Cell,
					Hosts: in.Body.Hosts, Labels: in.Body.Labels, AtOnce: in.Body.AtOnce, Once: in.Key})
				return answerRollout(r, err)
			})
	}
	order("prestage", farm.ImageFetch, "Have hosts fetch an image before anything starts from it, some at a time")
	order("invalidate", farm.ImageDrop, "Have hosts remove all versions of images, some at a time: those that no VM uses")
	handle(a.API, route{method: "GET", path: "/v1/image-rollouts/{id}", id: "get-image-rollout",
		whole: true, tag: imageTag,
		summary: "How far hosts are with a prestage-images or invalidate-images"},
		func(ctx context.Context, who farm.Identity, in *struct {
			ID string `path:"id" maxLength:"100" example:"11111111-1111-4111-8111-111111111111"`
		}) (*one[fleet.Rollout], error) {
			return answerRollout(a.server.Images.Rollout(ctx, who, in.ID))
		})
}

func answerRollout(r images.Rollout, err error) (*one[fleet.Rollout], error) {
	if err != nil {
		return nil, err
	}
	out := fleet.Rollout{ID: r.ID, Op: string(r.Op), What: r.What, AtOnce: r.AtOnce, By: r.By, Created: r.Created.UTC(),
		Ended: timeOrNil(r.Ended), Hosts: []fleet.HostTask{}}
	count := map[farm.TaskState]*int{farm.TaskWaiting: &out.Waiting, farm.TaskActive: &out.Active,
		farm.TaskDone: &out.Done, farm.TaskFailed: &out.Failed}
	for _, t := range r.Tasks {
		*count[t.State]++
		out.Hosts = append(out.Hosts, fleet.HostTask{Host: t.Name, State: string(t.State), Reason: t.Reason,
			Done: uint64(t.Done), Total: uint64(t.Total)})
	}
	slices.SortFunc(out.Hosts, func(x, y fleet.HostTask) int { return strings.Compare(x.Host, y.Host) })
	return oneOf(out, 0), nil
}

// hostRoutes are those of hosts: the catalogue, and files.
func (a imageRoutes) hostRoutes() {
	tag := "Link to hosts"
	hostRoute(a.API, route{method: "GET", path: fleet.RouteCatalogue, id: "get-catalogue", whose: forHosts, tag: tag,
		summary: "All that hosts know of images"}, nil, reflect.TypeFor[fleet.Catalogue](), a.catalogue)
	hostRoute(a.API, route{method: "GET", path: fleet.RouteBlob + "{sha256}", id: "get-blob", whose: forHosts, tag: tag,
		summary: "Bring a file of an image, or a range of it"}, nil, reflect.TypeFor[[]byte](), a.blob)
}

func (a imageRoutes) catalogue(w http.ResponseWriter, r *http.Request) {
	revision, all, names, err := a.server.Images.ForHosts(r.Context())
	a.hosts.answerHost(w, r, wire.Catalogue(revision, all, names), err)
}

// blob answers ranges and HEAD, too. It takes as long as the host reads.
func (a imageRoutes) blob(w http.ResponseWriter, r *http.Request) {
	sum := r.PathValue("sha256")
	f, err := a.server.Images.OpenBlob(sum)
	if err != nil {
		a.hosts.answerHost(w, r, nil, err)
		return
	}
	defer f.Close()
	w.Header().Set("ETag", `"`+sum+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, f)
}
