package catalogue

import (
	"errors"
	"fmt"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/reach"
	"github.com/grange-project/grange/internal/rootpath"
	"github.com/grange-project/grange/internal/vmimage"
)

// CodeNotFetched is of a container image that is not here, and is not the caller's to fetch.
const CodeNotFetched farm.Code = "image-not-fetched"

// Wish is the container image that a job asks for.
type Wish struct {
	Image  string // its reference
	Chosen bool   // by the site, not by the caller
	Pull   bool   // the caller wants it to be looked up anew
	Admin  bool   // the caller is an administrator
}

// MayFetch refuses an image that would have to be fetched first, unless the caller may do that: it takes this host's
// network, and space that is everybody's. It returns the entry of pull_images that allows it; "": none is needed.
func MayFetch(images *vmimage.Store, c config.Agent, w Wish) (entry string, err error) {
	if _, err := container.Parse(w.Image); err != nil {
		return "", err
	}
	if _, err := images.Get(w.Image); err == nil && !w.Pull || w.Admin || w.Chosen && !w.Pull {
		return "", nil
	}
	if entry, ok := c.PullEntry(w.Image); ok {
		return entry, nil
	}
	return "", notFetched("image %s is not on this host, or was to be looked up anew, which is not yours to do",
		w.Image)
}

func notFetched(format string, args ...any) error {
	return &farm.Error{Kind: farm.Denied, Code: CodeNotFetched, Message: fmt.Sprintf(format, args...),
		Hint: "use an image of `grange image list`, or ask the site: pull_images in the agent's configuration"}
}

// Resolve returns how the paths of images are resolved that an entry of pull_images allows, for container.Options; nil
// where no entry is needed.
func Resolve(entry string) func(path string) (string, error) {
	if entry == "" {
		return nil
	}
	host := rootpath.Host()
	return func(path string) (string, error) { return resolve(host, entry, path) }
}

// Outside bounds which servers are reached for an image that an entry of pull_images allows: the registry that the
// entry names, and, for tokens and layers, none at an address of this host or of its links. nil where no entry is
// needed.
func Outside(entry string) *reach.Outside {
	if entry == "" {
		return nil
	}
	return &reach.Outside{Host: config.PullHost(entry)}
}

func resolve(host rootpath.Resolver, entry, path string) (string, error) {
	real, err := host.Resolve(path, config.PullDirectory(entry))
	if errors.Is(err, rootpath.ErrUnsafe) {
		return "", notFetched("the agent does not read %s for you: %v", path, err)
	}
	return real, err
}
