package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/catalogue"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
	"github.com/grange-project/grange/internal/vmimage"
)

func TestMayFetch(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	a := testAgent(t, "pull_images = [\"oci://r.example/public/\", \"oci://r.example/one:1\"]\n")
	var err error
	if a.images, err = vmimage.Open(filepath.Join(t.TempDir(), "images")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.images.Close() })
	if _, err := a.images.FetchReference(t.Context(), vmimage.FetchOptions{Source: "dir:" + dir}); err != nil {
		t.Fatal(err)
	}
	user, root := Caller{UID: 12345}, Caller{}
	for _, c := range []struct {
		who   Caller
		asked string
		image string
		pull  bool
		code  farm.Code
	}{
		{user, "micro", "micro", false, ""},
		{user, "oci://r.example/public/a:2", "", false, ""},
		{user, "oci://r.example/public/a:2", "", true, ""},
		{user, "oci://r.example/one:1", "", false, ""},
		{user, "oci://r.example/one:2", "", false, catalogue.CodeNotFetched},
		{user, "oci://r.example/private/../public/a", "", false, imagesource.CodeBadSource},
		{user, "oci://r.example/public/../private/a", "", false, imagesource.CodeBadSource},
		{user, "dir:/root", "", false, catalogue.CodeNotFetched},
		{user, "/root/a.sif", "", false, catalogue.CodeNotFetched},
		{user, "dir:" + dir, "", false, ""},
		{user, "dir:" + dir, "", true, catalogue.CodeNotFetched},
		{root, "dir:/root", "", true, ""},
		{user, "", "dir:/chosen/by/the/site", false, ""},
		{user, "", "dir:/chosen/by/the/site", true, catalogue.CodeNotFetched},
		{root, "oci://nonsense", "", false, imagesource.CodeBadSource},
	} {
		if c.image == "" {
			c.image = c.asked
		}
		_, err := mayFetch(a.requests(), c.who, &api.JobRequest{Image: c.asked, Pull: c.pull}, c.image, 0)
		if c.code == "" && err != nil || c.code != "" && !farm.IsCode(err, c.code) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestContainerJob: a reference that is not here is fetched, and its image is in use then.
func TestContainerJob(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f := newFarmhouse(t)
	task, err := f.ask(f.caller(""), api.JobRequest{Image: "dir:" + dir})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for e := range task.events {
		all = append(all, e.Event+" "+e.Message)
		if e.Event == api.EventFailed || e.Event == api.EventRunning {
			if e.Problem != nil {
				all = append(all, e.Problem.Detail)
			}
			break
		}
	}
	text := strings.Join(all, "\n")
	if !strings.Contains(text, "is fetched: import") || !strings.Contains(text, "running") {
		t.Errorf("events:\n%s", text)
	}
	r := task.job.vm.recordNow()
	image, err := f.agent.images.Get("dir:" + dir)
	if err != nil || r.Digest != image.Digest || r.Image != "dir:"+dir {
		t.Errorf("%+v, %v", r, err)
	}
	if !newImageRoutes(f.agent).InUse(image.Digest) {
		t.Error("the image is not in use")
	}
}

// TestOldGuest: a micro image of an earlier release would run a container's job in itself, and gets none.
func TestOldGuest(t *testing.T) {
	f := newFarmhouse(t)
	f.guests.old = true
	task, err := f.ask(f.caller(""), api.JobRequest{Image: "dir:" + t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for e := range task.events {
		if e.Event == api.EventReady || e.Event == api.EventRetry {
			t.Fatal("the job was given to a guest that does not know its image:", e)
		}
		if e.Event == api.EventFailed {
			if e.Problem == nil || !strings.HasSuffix(e.Problem.Type, string(vmimage.CodeRootKernel)) {
				t.Errorf("%+v", e.Problem)
			}
			return
		}
	}
	t.Error("the job did not fail")
}
