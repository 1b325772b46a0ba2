package imagesource

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// streamsPrefix is that of references to a simplestreams tree, the form in which Ubuntu and Incus publish:
// simplestreams+https://HOST/DIRECTORY/#PRODUCT[/FTYPE]. The latest version of the product is taken.
const streamsPrefix = "simplestreams+"

// diskTypes are the file types of disks that are taken where the reference names none, the best first.
var diskTypes = []string{"disk-kvm.img", "disk1.img", "uefi1.img", "root.tar.xz.qcow2", "qcow2", "disk.img"}

const (
	mostIndex    = 64 << 20 // bytes of an index or a list of products: Ubuntu's has 4 MB
	streamsIndex = "streams/v1/index.json"
)

// streams is one product of a simplestreams tree.
type streams struct {
	ref, base, product, ftype string
	item                      *item // that Stat found last
	open                      func(ref string) (Source, error)
}

// item is a file of a version of a product.
type item struct {
	Ftype  string `json:"ftype"`
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	web    Source
}

func newStreams(ref string, open func(ref string) (Source, error)) (Source, error) {
	base, product, _ := strings.Cut(strings.TrimPrefix(ref, streamsPrefix), "#")
	product, ftype, _ := strings.Cut(product, "/")
	if product == "" {
		return nil, badSource(ref, "it names no product: write simplestreams+https://HOST/DIRECTORY/#PRODUCT")
	}
	if !strings.HasSuffix(base, "/") {
		base += "/"
	}
	if _, err := open(base + streamsIndex); err != nil {
		return nil, err
	}
	return &streams{ref: ref, base: base, product: product, ftype: ftype, open: open}, nil
}

func (s *streams) Stat(ctx context.Context) (Info, error) {
	i, err := s.find(ctx)
	if err != nil {
		return Info{}, err
	}
	s.item = i
	info, err := i.web.Stat(ctx)
	if err != nil {
		return Info{}, err
	}
	if info.Size >= 0 && i.Size > 0 && info.Size != i.Size {
		err = fmt.Errorf("the index says %d bytes, the server has %d", i.Size, info.Size)
		return Info{}, sourceError(s.ref, false, err)
	}
	info.Sum = Sum(i.SHA256)
	return info, nil
}

func (s *streams) Open(ctx context.Context, version string, offset int64) (io.ReadCloser, error) {
	if s.item == nil {
		return nil, ErrChanged
	}
	return s.item.web.Open(ctx, version, offset)
}

// find reads the index, and the lists of products that name ours.
func (s *streams) find(ctx context.Context) (*item, error) {
	var index struct {
		Index map[string]struct {
			Path     string   `json:"path"`
			Products []string `json:"products"`
		} `json:"index"`
	}
	if err := s.read(ctx, streamsIndex, &index); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(index.Index)) {
		list := index.Index[name]
		if !slices.Contains(list.Products, s.product) {
			continue
		}
		found, err := s.latest(ctx, list.Path)
		if err != nil {
			return nil, err
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, sourceError(s.ref, true, fmt.Errorf("no disk of product %s is there", s.product))
}

// latest is the disk of the product's latest version that has one; nil: none has.
func (s *streams) latest(ctx context.Context, list string) (*item, error) {
	var products struct {
		Products map[string]struct {
			Versions map[string]struct {
				Items map[string]item `json:"items"`
			} `json:"versions"`
		} `json:"products"`
	}
	if err := s.read(ctx, list, &products); err != nil {
		return nil, err
	}
	versions := products.Products[s.product].Versions
	wanted := diskTypes
	if s.ftype != "" {
		wanted = []string{s.ftype}
	}
	for _, v := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
		items := versions[v].Items
		for _, ftype := range wanted {
			for _, key := range slices.Sorted(maps.Keys(items)) {
				if i := items[key]; i.Ftype == ftype {
					return s.web(i)
				}
			}
		}
	}
	return nil, nil
}

// web adds where the file is, which must be below the tree, and its checksum, which must be there.
func (s *streams) web(i item) (*item, error) {
	if _, err := ParseSum(i.SHA256); err != nil || len(i.SHA256) != 64 {
		return nil, unverified(fmt.Sprintf("the index has no SHA-256 of %s", i.Path), "use another source")
	}
	i.SHA256 = strings.ToLower(i.SHA256)
	file, err := s.below(i.Path)
	if err == nil {
		i.web, err = s.open(file)
	}
	return &i, err
}

// below is the URL of a path in the tree.
func (s *streams) below(path string) (string, error) {
	u, err := url.Parse(path)
	if err != nil || u.IsAbs() || u.Host != "" || strings.HasPrefix(path, "/") ||
		slices.Contains(strings.Split(path, "/"), "..") {
		return "", badSource(s.ref, fmt.Sprintf("its index leads elsewhere: %q", path))
	}
	return s.base + path, nil
}

func (s *streams) read(ctx context.Context, path string, into any) error {
	file, err := s.below(path)
	if err != nil {
		return err
	}
	from, err := s.open(file)
	if err != nil {
		return err
	}
	text, err := ReadSmall(ctx, from, mostIndex)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return sourceError(s.ref, true, fmt.Errorf("invalid index %s: %w", path, err))
	}
	return nil
}
