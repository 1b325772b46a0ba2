package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/images"
	"github.com/grange-project/grange/internal/store"
)

const (
	oldDebian = "sha256:" + "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	newDebian = "sha256:" + "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// catalogued puts an image into the catalogue, without files.
func (l *lab) catalogued(name, digest string, change func(*farm.FleetImage)) {
	l.t.Helper()
	l.update(func(tx *store.Tx) error {
		i := farm.FleetImage{Digest: digest, Kind: "disk", State: farm.ImageActive, VirtualSize: 2 * farm.GiB}
		if change != nil {
			change(&i)
		}
		if err := store.ImagesOf(tx).Put(i); err != nil {
			return err
		}
		n, err := store.ImagesOf(tx).Name(name)
		if err != nil {
			n = farm.ImageName{Name: name}
		}
		n.Move(digest, "test", l.clock())
		return store.ImagesOf(tx).PutName(n)
	})
}

// mark changes the state of an image.
func (l *lab) mark(ref, state string) images.Details {
	l.t.Helper()
	d, err := l.Images.Mark(l.t.Context(), site, ref, 0, images.Mark{State: &state})
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

// What the server downloads of images is bounded by its rate.
func TestPaceOfDownloads(t *testing.T) {
	l := newLab(t)
	disk := make([]byte, 1<<20)
	copy(disk[510:], "\x55\xaa")
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Images.Add(t.Context(), root, images.Request{Name: "d", Source: path}, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if n := l.downloaded.Load(); n != int64(len(disk)) {
		t.Errorf("%d of %d bytes kept the pace", n, len(disk))
	}
}

// A VM keeps the version that its image was when it was made, until it is rebuilt.
func TestVMOfTheCatalogue(t *testing.T) {
	l := newLab(t)
	h := l.machine("wn-1", "east") // it has not the image
	l.catalogued("debian", oldDebian, nil)
	v := l.create(ann, CreateVM{Project: "alice", Name: "web", Image: "debian", CPUs: 2, Memory: 2 * farm.GiB})[0]
	if v.Digest != oldDebian {
		t.Fatalf("digest %q", v.Digest)
	}
	l.settle(l.placing())
	if got := l.must(v.ID); got.Host != h.ID {
		t.Fatalf("host %q: %s", got.Host, got.Waiting)
	}
	l.says(v.ID, farm.VMRunning)
	l.catalogued("debian", newDebian, nil)
	if _, err := l.VMs.Restart(t.Context(), ann, v.ID, 0); err != nil || l.must(v.ID).Digest != oldDebian {
		t.Error(err, l.must(v.ID).Digest)
	}
	if _, err := l.VMs.Rebuild(t.Context(), ann, v.ID, 0, ""); err != nil || l.must(v.ID).Digest != newDebian {
		t.Error(err, l.must(v.ID).Digest)
	}
	other := l.create(ann, CreateVM{Project: "alice", Name: "own", Image: "micro", CPUs: 1, Memory: farm.GiB})[0]
	if other.Digest != "" {
		t.Errorf("an image of hosts has digest %s", other.Digest)
	}
}

func TestImageRefusesVMs(t *testing.T) {
	l := newLab(t)
	l.catalogued("atlas-1", oldDebian, func(i *farm.FleetImage) { i.Projects = []string{"atlas"} })
	l.catalogued("large", newDebian, func(i *farm.FleetImage) { i.MinMemory = 4 * farm.GiB })
	create := func(image string, memory farm.Bytes) error {
		_, err := l.VMs.Create(t.Context(), ann,
			CreateVM{Project: "alice", Name: "x", Image: image, CPUs: 1, Memory: memory})
		return err
	}
	if err := create("atlas-1", farm.GiB); code(err) != images.CodeImageProject {
		t.Errorf("of another project: %v", err)
	}
	if err := create("large", farm.GiB); code(err) != images.CodeImageSmall {
		t.Errorf("too small: %v", err)
	}
	l.update(func(tx *store.Tx) error {
		return tx.PutSetting("maxima", []byte(`{"CPUModels":["host-*"]}`))
	})
	l.catalogued("model", oldDebian, func(i *farm.FleetImage) { i.Properties = map[string]string{"hw_cpu_model": "max"} })
	if err := create("model", farm.GiB); code(err) != farm.CodeBeyondMaxima {
		t.Errorf("beyond the site's maxima: %v", err)
	}
}

// From a withdrawn image nothing starts; what runs of it is listed.
func TestWithdrawnStartsNothing(t *testing.T) {
	l := newLab(t)
	h := l.machine("wn-1", "east")
	l.catalogued("debian", oldDebian, nil)
	v := l.running(ann, CreateVM{Project: "alice", Name: "web", Image: "debian", CPUs: 1, Memory: farm.GiB}, h)
	d := l.mark("debian", "withdrawn")
	if strings.Join(d.VMs, " ") != "alice/web" {
		t.Errorf("runs: %v", d.VMs)
	}
	if _, err := l.VMs.Create(t.Context(), ann, CreateVM{Project: "alice", Name: "b", Image: "debian", CPUs: 1,
		Memory: farm.GiB}); code(err) != farm.CodeWithdrawn {
		t.Errorf("created: %v", err)
	}
	for what, do := range map[string]func() error{
		"restart": func() error { _, err := l.VMs.Restart(t.Context(), ann, v.ID, 0); return err },
		"rebuild": func() error { _, err := l.VMs.Rebuild(t.Context(), ann, v.ID, 0, ""); return err },
	} {
		if err := do(); code(err) != farm.CodeWithdrawn {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := l.VMs.Stop(t.Context(), ann, v.ID, 0); err != nil {
		t.Fatal(err)
	}
	l.says(v.ID, farm.VMStopped)
	if _, err := l.VMs.Start(t.Context(), ann, v.ID, 0); code(err) != farm.CodeWithdrawn {
		t.Errorf("start: %v", err)
	}
	l.mark("debian", "active")
	if _, err := l.VMs.Start(t.Context(), ann, v.ID, 0); err != nil {
		t.Errorf("active again: %v", err)
	}
	if err := l.Images.Remove(t.Context(), site, "debian", 0); code(err) != farm.CodeImageInUse {
		t.Errorf("removed under a VM: %v", err)
	}
}

// An image that was removed starts nothing any more, stays kept to its projects, and its copies can be removed.
func TestRemovedImage(t *testing.T) {
	l := newLab(t)
	l.machine("wn-1", "east")
	l.catalogued("debian", oldDebian, nil)
	if err := l.Images.Remove(t.Context(), site, "debian", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := l.VMs.Create(t.Context(), ann, CreateVM{Project: "alice", Name: "b", Image: oldDebian, CPUs: 1,
		Memory: farm.GiB}); code(err) != farm.CodeNoImage {
		t.Errorf("created: %v", err)
	}
	if views, err := l.Images.List(t.Context(), site); err != nil || len(views) != 0 {
		t.Errorf("listed: %v %v", views, err)
	}
	r, err := l.Images.Order(t.Context(), site, farm.ImageDrop, oldDebian, images.Choice{Hosts: []string{"*"}})
	if err != nil || len(r.Tasks) != 1 {
		t.Errorf("invalidated on %v: %v", r.Tasks, err)
	}
	if d := l.mark(oldDebian, "withdrawn"); d.State != farm.ImageWithdrawn {
		t.Errorf("withdrawn: %+v", d)
	}
}

// Hosts are told at once that the catalogue is another one, also those without VMs.
func TestHostsAreToldOfTheCatalogue(t *testing.T) {
	l := newLab(t)
	h := l.joined("wn-1")
	h.tell(fleet.Report{Instance: "i", Whole: true, Facts: h.facts("i", "b")})
	first, changed, err := l.Links.Wanted(t.Context(), h.who(), "i", 0)
	if err != nil || !changed || first.Catalogue != 0 {
		t.Fatal(first, changed, err)
	}
	told := make(chan fleet.WantedList, 1)
	go func() {
		list, _, err := l.Links.Wanted(t.Context(), h.who(), "i", first.Revision)
		if err != nil {
			t.Error(err)
		}
		told <- list
	}()
	go l.follow(t.Context())
	l.catalogued("debian", oldDebian, nil)
	if list := <-told; list.Catalogue == 0 {
		t.Errorf("%+v", list)
	}
}

// For who is not root, the server reads none of its files, and asks nothing at an address of its own.
func TestSourcesOfRoot(t *testing.T) {
	l := newLab(t)
	asked := 0
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer inner.Close()
	file, url := "/etc/hostname", inner.URL+"/disk.img"
	for name, r := range map[string]images.Request{
		"source":            {Source: file},
		"layout":            {Source: "oci-layout:/etc"},
		"list":              {Source: "https://192.0.2.1/disk.img", Sums: file},
		"list as a URL":     {Source: "https://192.0.2.1/disk.img", Sums: "file://" + file},
		"signature":         {Source: "https://192.0.2.1/disk.img", Sums: url, Signature: file, Keyring: []byte("x")},
		"source by network": {Source: url},
		"tree":              {Source: "simplestreams+" + inner.URL + "/#it"},
		"registry":          {Source: "oci+http" + strings.TrimPrefix(inner.URL, "http") + "/a"},
	} {
		r.Name = "d"
		if _, err := l.Images.Add(t.Context(), site, r, func(string) {}); code(err) != farm.CodeNotYours || asked > 0 {
			t.Errorf("%s: %v, asked %d times", name, err, asked)
		}
	}
	if _, err := l.Images.Add(t.Context(), root, images.Request{Name: "d", Source: url}, func(string) {}); asked == 0 {
		t.Errorf("root's source was not asked: %v", err)
	}
}
