package agent

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

func TestImageCatalogue(t *testing.T) {
	f := newFarmhouse(t)
	disk := make([]byte, 1<<20)
	copy(disk[510:], "\x55\xaa")
	source := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(source, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	f.close()
	client, ctx := f.serve(f.hypervisor()), t.Context()
	f.eventually("the agent answers", func() error { _, err := client.VMs(ctx); return err })
	var steps []string
	i, err := client.MakeImage(ctx, api.ImageRequest{Name: "added", Source: source},
		func(step string) { steps = append(steps, step) })
	if err != nil || i.Source != source || !slices.ContainsFunc(steps, func(s string) bool {
		return strings.HasPrefix(s, "download: 100 %")
	}) {
		t.Fatalf("%+v, %v, steps %q", i, err, steps)
	}
	if _, err := client.MakeImage(ctx, api.ImageRequest{Name: "b", Source: source, Path: source}, nil); err == nil {
		t.Error("two origins are taken")
	}
	withdrawn, because := "withdrawn", "a hole"
	d, err := client.MarkImage(ctx, "added", api.ImageMark{State: &withdrawn, Reason: &because})
	if err != nil || d.State != withdrawn || d.Reason != because || len(d.Versions) != 1 || !d.Versions[0].Stored {
		t.Errorf("%+v, %v", d, err)
	}
	pinned := true
	if d, err = client.MarkImage(ctx, "added", api.ImageMark{Pinned: &pinned}); err != nil || d.State != withdrawn {
		t.Errorf("%+v, %v", d, err)
	}
	nonsense := "gone"
	if _, err := client.MarkImage(ctx, "added", api.ImageMark{State: &nonsense}); err == nil {
		t.Error("a state that is none")
	}
	if d, err = client.TagImage(ctx, "added", "stable"); err != nil || d.Name != "stable" {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := client.VerifyImage(ctx, "stable"); err != nil {
		t.Error(err)
	}
	// The name goes to another image, and what it was has no other: it is pinned.
	if err := client.RemoveImage(ctx, "added"); err != nil {
		t.Error(err)
	}
	if _, err := client.TagImage(ctx, "micro", "stable"); err != nil {
		t.Error(err)
	}
	if gone, err := client.PurgeImages(ctx, api.ImagePurge{}); err != nil || len(gone) != 0 {
		t.Error(gone, err)
	}
	pinned = false
	if _, err := client.MarkImage(ctx, i.Digest, api.ImageMark{Pinned: &pinned}); err != nil {
		t.Error(err)
	}
	gone, err := client.PurgeImages(ctx, api.ImagePurge{})
	if err != nil || len(gone) != 1 || gone[0].Digest != i.Digest {
		t.Error(gone, err)
	}
	if d, err = client.Image(ctx, "stable"); err != nil || len(d.Versions) != 2 || d.Versions[0].Stored {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestImageRights: images are for every user, and only root's to change.
func TestImageRights(t *testing.T) {
	f := newFarmhouse(t)
	changed := 0
	for pattern, do := range newImageRoutes(f.agent).actions() {
		if strings.HasPrefix(pattern, "GET ") {
			continue
		}
		changed++
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
		r.SetPathValue("ref", "micro")
		if err := do(httptest.NewRecorder(), r, f.as(1000)); err == nil ||
			!strings.HasPrefix(err.Error(), "only an administrator") {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	if changed < 5 {
		t.Errorf("%d routes change images", changed)
	}
}

// TestJobOfMarkedImage: the user of a deprecated image is warned, and nothing starts from a withdrawn one.
func TestJobOfMarkedImage(t *testing.T) {
	f := newFarmhouse(t)
	mark := func(state vmimage.State) {
		if _, err := f.agent.images.SetMark("micro", func(m *vmimage.Mark) {
			m.State, m.Successor = state, "el9"
		}); err != nil {
			t.Fatal(err)
		}
	}
	mark(vmimage.Deprecated)
	held := f.mustAsk(f.caller(""), api.JobRequest{})
	held.until(api.EventWarning)
	held.until(api.EventRunning)
	mark(vmimage.Withdrawn)
	if users := f.agent.usersOfImage(f.agent.all()[0].recordNow().Digest); len(users) != 1 {
		t.Errorf("users %q", users)
	}
	held.done()
	refused := f.mustAsk(f.caller(""), api.JobRequest{})
	for e := range refused.events {
		var problem error
		if e.Problem != nil {
			problem = e.Problem
		}
		if e.Event == api.EventRunning {
			t.Error("it runs")
		} else if problem != nil {
			var p *api.Problem
			if !errors.As(problem, &p) || p.Type != "grange:"+string(farm.CodeWithdrawn) {
				t.Error(problem)
			}
			return
		}
	}
	t.Error("no problem")
}
