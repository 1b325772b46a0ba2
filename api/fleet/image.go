package fleet

import (
	"encoding/json"
	"time"

	"github.com/grange-project/grange/api"
)

// Image is an image of the catalogue under one of its names, or one that hosts have of their own.
type Image struct {
	Name  string `json:"name"`  // or digest, as hosts report it
	Hosts int    `json:"hosts"` // that have it

	// all others are of images of the catalogue alone
	Catalogue   bool              `json:"catalogue,omitempty"`
	Digest      string            `json:"digest,omitempty"`
	Kind        string            `json:"kind,omitempty"` // disk, kernel or root
	Format      string            `json:"format,omitempty"`
	Size        uint64            `json:"size,omitempty"`
	VirtualSize uint64            `json:"virtual_size,omitempty"`
	Note        string            `json:"note,omitempty"`
	OS          string            `json:"os,omitempty"`
	MinDisk     uint64            `json:"min_disk,omitempty"`
	MinMemory   uint64            `json:"min_memory,omitempty"`
	Properties  map[string]string `json:"properties,omitempty"`
	Projects    []string          `json:"projects,omitempty"` // whose VMs may be made of it; none: all
	State       string            `json:"state,omitempty"`    // active, deprecated or withdrawn
	Successor   string            `json:"successor,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	Source      string            `json:"source,omitempty"`
	Verdict     string            `json:"verdict,omitempty"` // what vouches for the content
	By          string            `json:"by,omitempty"`
	Created     *time.Time        `json:"created,omitempty"`
	Removed     bool              `json:"removed,omitempty"` // its files are gone
	Revision    int64             `json:"revision,omitempty"`
}

// ImageDetails are an image, what its name has meant, who has it and what runs of it.
type ImageDetails struct {
	Image
	Names    []string       `json:"names,omitempty"`
	Versions []ImageVersion `json:"versions,omitempty"` // of its name, the latest last
	Holders  []string       `json:"holders,omitempty"`  // hosts that have it, those that the caller may see
	VMs      []string       `json:"vms,omitempty"`      // made of it, as PROJECT/NAME, those that the caller may see
	Jobs     int            `json:"jobs"`               // VMs of jobs that run from it, as hosts report
}

// ImageVersion is an image that a name has meant.
type ImageVersion struct {
	Digest string    `json:"digest"`
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Stored bool      `json:"stored"` // its files are there
}

// ImageRequest adds an image: from a source, or from files that were uploaded.
type ImageRequest struct {
	Name       string            `json:"name"`
	Source     string            `json:"source,omitempty"`
	Files      []UploadedFile    `json:"files,omitempty"`
	Sum        string            `json:"sum,omitempty"` // of the file at the source, as the next three
	Sums       string            `json:"sums,omitempty"`
	Signature  string            `json:"signature,omitempty"`
	Keyring    []byte            `json:"keyring,omitempty"`
	Note       string            `json:"note,omitempty"`
	OS         string            `json:"os,omitempty"`
	MinDisk    uint64            `json:"min_disk,omitempty"`
	MinMemory  uint64            `json:"min_memory,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
	Projects   []string          `json:"projects,omitempty"`
}

// UploadedFile is a file of an image that was uploaded: one disk, or a kernel's vmlinuz, initrd and cmdline.
type UploadedFile struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// Upload is how far an upload is.
type Upload struct {
	SHA256   string `json:"sha256"`
	Received uint64 `json:"received"` // bytes; go on behind them
}

// UploadPiece is the most bytes of one piece of an upload.
const UploadPiece = 4 << 20

// ImageEvent is a line of the answer to an ImageRequest. The last has the image or the problem.
type ImageEvent struct {
	Message string        `json:"message,omitempty"`
	Image   *ImageDetails `json:"image,omitempty"`
	Problem *api.Problem  `json:"problem,omitempty"`
}

// ImageMark changes the state of an image. What is nil stays.
type ImageMark struct {
	State     *string `json:"state,omitempty"` // active, deprecated or withdrawn
	Successor *string `json:"successor,omitempty"`
	Reason    *string `json:"reason,omitempty"`
}

// ImageTag gives an image a name.
type ImageTag struct {
	Name string `json:"name"`
}

// ImageRollout has hosts do something with images, some of them at a time.
type ImageRollout struct {
	Image  string            `json:"image"` // a name or a digest; to invalidate, also a pattern, as debian-*
	Cell   string            `json:"cell,omitempty"`
	Hosts  []string          `json:"hosts,omitempty"` // names, patterns or IDs; none: all
	Labels map[string]string `json:"labels,omitempty"`
	AtOnce int               `json:"at_once,omitempty"` // hosts that are at it at a time; 0: as the server likes
}

// Rollout is how far hosts are with what they are to do.
type Rollout struct {
	ID      string     `json:"id"`
	Op      string     `json:"op"` // fetch or drop
	What    string     `json:"what"`
	AtOnce  int        `json:"at_once"`
	By      string     `json:"by"`
	Created time.Time  `json:"created"`
	Ended   *time.Time `json:"ended,omitempty"`
	Waiting int        `json:"waiting"` // hosts
	Active  int        `json:"active"`
	Done    int        `json:"done"`
	Failed  int        `json:"failed"`
	Hosts   []HostTask `json:"hosts,omitempty"` // that the caller may see
}

// HostTask is one host's part of a Rollout.
type HostTask struct {
	Host   string `json:"host"` // its name
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	Done   uint64 `json:"done,omitempty"` // bytes, as the next
	Total  uint64 `json:"total,omitempty"`
}

// Catalogue is what hosts know of the images of the fleet.
type Catalogue struct {
	Revision int64             `json:"revision"`
	Images   []CatalogueImage  `json:"images"`
	Names    map[string]string `json:"names"` // digests
}

// CatalogueImage is an image as hosts know it.
type CatalogueImage struct {
	Digest    string          `json:"digest"`
	State     string          `json:"state"`
	Successor string          `json:"successor,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Projects  []string        `json:"projects,omitempty"`
	MinMemory uint64          `json:"min_memory,omitempty"`
	Removed   bool            `json:"removed,omitempty"`
	Servers   []string        `json:"servers,omitempty"`  // that have the files
	Manifest  json.RawMessage `json:"manifest,omitempty"` // image.json: the files, which the digest stands for
}

// ImageOrder is what a host is to do with images.
type ImageOrder struct {
	ID      string   `json:"id"`
	Op      string   `json:"op"`             // fetch, or drop: but for those that a VM uses
	Name    string   `json:"name,omitempty"` // of a fetch
	Digests []string `json:"digests"`
}

// ImageUse is what a host says of an image: VMs of jobs that run from it, a transfer that is under way, an order that
// came to nothing.
type ImageUse struct {
	Digest string `json:"digest,omitempty"`
	Jobs   int    `json:"jobs,omitempty"`
	Done   uint64 `json:"done,omitempty"`
	Total  uint64 `json:"total,omitempty"`
	Order  string `json:"order,omitempty"`
	Reason string `json:"reason,omitempty"`
}
