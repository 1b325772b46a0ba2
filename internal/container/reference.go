// Package container makes root file systems of VMs from container images: of registries, OCI layouts, unpacked
// directories and Apptainer's SIF files. Whoever made an image may be hostile. Layers are compared with their digests
// before they are read, and become one erofs file: none of their names, types and rights ever exists on the host.
package container

import (
	"crypto/sha256"
	"fmt"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// The schemes of references.
const (
	schemeRegistry  = "oci://"
	schemePlainHTTP = "oci+http://" // the same over plain http, which is never chosen otherwise
	schemeLayout    = "oci-layout:"
	schemeDirectory = "dir:"
	schemeSIF       = "sif:"
)

// Reference names a container image by where it is.
type Reference struct {
	scheme string
	path   string         // of a directory or a file, absolute
	tag    string         // of an OCI layout; "": its only image
	image  name.Reference // in a registry
	text   string
}

// Is reports whether text is meant as a reference of this package, valid or not.
func Is(text string) bool {
	for _, s := range []string{schemeRegistry, schemePlainHTTP, schemeLayout, schemeDirectory, schemeSIF} {
		if strings.HasPrefix(text, s) {
			return true
		}
	}
	return strings.HasPrefix(text, "/") && strings.HasSuffix(text, ".sif")
}

// mostReference is far beyond what people write, and what a path has.
const mostReference = 4096 + 512

// repositoryName is as the OCI's distribution specification has it: no detours.
var repositoryName = lazyregexp.New(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)

var layoutTag = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Parse reads oci://REGISTRY/NAME[:TAG][@DIGEST], oci+http://…, oci-layout:/DIR[:TAG], sif:/FILE, /FILE.sif or
// dir:/DIR. Error: imagesource.CodeBadSource.
func Parse(text string) (Reference, error) {
	r := Reference{text: text}
	if len(text) > mostReference || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return r, bad("of an image", "it is too long, or has characters that nobody sees")
	}
	switch {
	case strings.HasPrefix(text, schemeRegistry), strings.HasPrefix(text, schemePlainHTTP):
		return parseRegistry(r)
	case strings.HasPrefix(text, schemeLayout):
		r.scheme, r.path = schemeLayout, strings.TrimPrefix(text, schemeLayout)
		if dir, tag, ok := cutLast(r.path, ':'); ok && layoutTag.MatchString(tag) {
			r.path, r.tag = dir, tag
		}
	case strings.HasPrefix(text, schemeDirectory):
		r.scheme, r.path = schemeDirectory, strings.TrimPrefix(text, schemeDirectory)
	case strings.HasPrefix(text, schemeSIF):
		r.scheme, r.path = schemeSIF, strings.TrimPrefix(text, schemeSIF)
	case Is(text):
		r.scheme, r.path = schemeSIF, text
	default:
		return r, bad(text, "it has no scheme that is known")
	}
	if !path.IsAbs(r.path) || path.Clean(r.path) != r.path || r.path == "/" {
		return r, bad(text, "the path is not absolute, or has detours")
	}
	return r, nil
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

func parseRegistry(r Reference) (Reference, error) {
	options := []name.Option{name.WeakValidation}
	r.scheme = schemeRegistry
	if strings.HasPrefix(r.text, schemePlainHTTP) {
		r.scheme, options = schemePlainHTTP, append(options, name.Insecure)
	}
	rest := strings.TrimPrefix(r.text, r.scheme)
	// Nobody should get an image from a registry that they did not name.
	host, repository, ok := strings.Cut(rest, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" || strings.ContainsAny(rest, " ?#%\\") {
		return r, bad(r.text, "it needs a registry and a name: oci://REGISTRY/NAME[:TAG][@DIGEST]")
	}
	if strings.Contains(host, "@") {
		return r, bad(schemeRegistry+"…", "a password in a reference ends up in logs")
	}
	if host == "localhost" {
		rest = "localhost:443/" + repository // the library would take it for a name on Docker Hub
		if r.scheme == schemePlainHTTP {
			rest = "localhost:80/" + repository
		}
	}
	words, _, _ := strings.Cut(repository, "@")
	words, _, _ = strings.Cut(words, ":")
	if !repositoryName.MatchString(words) {
		return r, bad(r.text, "invalid name of an image")
	}
	image, err := name.ParseReference(rest, options...)
	if err != nil {
		return r, bad(r.text, err.Error())
	}
	r.image = image
	return r, nil
}

// String is the reference as it was written.
func (r Reference) String() string { return r.text }

// IsSIF reports whether the reference names a SIF file, and which.
func (r Reference) IsSIF() (file string, ok bool) { return r.path, r.scheme == schemeSIF }

var outsideName = lazyregexp.New(`[^a-z0-9._-]+`)

// ImageName is the name under which the image of a reference is in a store: some of its words, and a digest that no
// other reference has.
func (r Reference) ImageName() string {
	words := path.Base(r.path)
	if r.image != nil {
		words = path.Base(r.image.Context().RepositoryStr())
		if tag := r.image.Identifier(); !strings.Contains(tag, ":") {
			words += "-" + tag
		}
	} else if r.tag != "" {
		words += "-" + r.tag
	}
	const digits = 20
	words = strings.Trim(outsideName.ReplaceAllString(strings.ToLower(words), "-"), "._-")
	words = strings.Trim(words[:min(len(words), 63-digits-1)], "._-")
	if words == "" {
		words = "image"
	}
	return fmt.Sprintf("%s-%x", words, sha256.Sum256([]byte(r.text)))[:len(words)+1+digits]
}

// Path returns the path of a reference; "" of one in a registry.
func (r Reference) Path() string { return r.path }

func bad(ref, why string) error {
	return &farm.Error{Kind: farm.Invalid, Code: imagesource.CodeBadSource,
		Message: fmt.Sprintf("invalid image reference %.300q: %s", ref, why),
		Hint: "give oci://REGISTRY/NAME[:TAG][@DIGEST], oci-layout:/DIR[:TAG], dir:/DIR, sif:/FILE or the path of a " +
			"file that ends in .sif"}
}
