package container

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
)

const someDigest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"oci://registry.example/a/b:1.36":              "registry.example/a/b:1.36",
		"oci://registry.example:5000/b":                "registry.example:5000/b:latest",
		"oci://registry.example/b:tag" + someDigest:    "registry.example/b" + someDigest,
		"oci://docker.io/library/busybox" + someDigest: "index.docker.io/library/busybox" + someDigest,
		"oci+http://localhost:5000/b":                  "localhost:5000/b:latest",
		"oci+http://localhost/b":                       "localhost:80/b:latest",
		"oci-layout:/some/dir:v1":                      "/some/dir v1",
		"oci-layout:/some/dir":                         "/some/dir ",
		"oci-layout:/some/a:b/dir":                     "/some/a:b/dir ",
		"dir:/cvmfs/unpacked.cern.ch/a/b:latest":       "/cvmfs/unpacked.cern.ch/a/b:latest ",
		"sif:/a/b":                                     "/a/b ",
		"/a/b.sif":                                     "/a/b.sif ",
	} {
		r, err := Parse(text)
		if err != nil || !Is(text) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := r.path + " " + r.tag
		if r.image != nil {
			got = r.image.Name()
		}
		if got != want {
			t.Errorf("%s: %q, wanted %q", text, got, want)
		}
	}
	for _, text := range []string{"", "busybox", "oci://", "oci://busybox", "oci://library/busybox", "oci://r.example/",
		"oci://r.example/../b", "oci://r.example/a/../b", "oci://u:p@r.example/a", "oci://r.example/A", "oci://r.example/a:",
		"oci://r.example/a@sha256:00", "oci://r.example/a b", "oci://r.example/a?x", "oci://r.example/a//b", "dir:", "dir:/",
		"dir:relative", "dir:/a/../b", "dir:/a/", "sif:a.sif", "oci-layout:x", "oci-layout::v", "dir:/a\nb",
		"oci://r.example/" + strings.Repeat("a/", 3000) + "a", "http://r.example/a"} {
		var known *farm.Error
		if r, err := Parse(text); !errors.As(err, &known) || known.Code != imagesource.CodeBadSource || known.Hint == "" {
			t.Errorf("%.100q: %+v, %v", text, r, err)
		}
	}
}

var storeName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func TestImageName(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{"oci://r.example/a/busybox:1.36", "oci://other.example/busybox:1.36",
		"oci://r.example/a" + someDigest, "oci-layout:/d:v", "oci-layout:/d", "dir:/Ä/Ö",
		"dir:/a/" + strings.Repeat("x", 200), "sif:/a/B.sif", "/a/B.sif", "dir:/-._"} {
		r, err := Parse(text)
		if err != nil {
			t.Fatal(text, err)
		}
		n := r.ImageName()
		if !storeName.MatchString(n) || seen[n] != "" {
			t.Errorf("%s and %s: %q", text, seen[n], n)
		}
		seen[n] = text
	}
	r, _ := Parse("oci://r.example/a/busybox:1.36")
	if n := r.ImageName(); !strings.HasPrefix(n, "busybox-1.36-") {
		t.Error(n)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"oci://r.example/a:b" + someDigest, "oci+http://localhost/a", "oci-layout:/a:b", "dir:/a",
		"sif:/a", "/a.sif", "oci://r.example:99999/a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if !Is(text) || !storeName.MatchString(r.ImageName()) || r.String() != text {
			t.Errorf("%q: %q", text, r.ImageName())
		}
		if r.image == nil && (!strings.HasPrefix(r.path, "/") || strings.Contains(r.path+"/", "/../")) {
			t.Errorf("%q leads to %q", text, r.path)
		}
		if r.image != nil && strings.Contains(r.image.Context().RepositoryStr(), "..") {
			t.Errorf("%q asks for %q", text, r.image.Name())
		}
	})
}
