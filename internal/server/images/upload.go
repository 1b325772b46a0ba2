package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

const (
	uploadsDir = "uploads" // a directory for each file that comes, by its checksum
	uploadData = "data"
	// uploadAge is how long an upload is kept that nobody continued.
	uploadAge = 7 * 24 * time.Hour
	// mostUploads bounds what is begun and not ended.
	mostUploads = 100
)

func (c *Catalogue) upload(sum string) string { return filepath.Join(c.Dir, uploadsDir, sum) }

func isSum(sum string) bool { return farm.IsDigest("sha256:" + sum) }

func badUpload(format string, args ...any) error {
	return &farm.Error{Kind: farm.Conflict, Code: CodeUpload, Message: fmt.Sprintf(format, args...),
		Hint: "ask how much has come, and go on there; `grange image add` does"}
}

// Received is how much of a file has come, by its SHA-256 in hex.
func (c *Catalogue) Received(ctx context.Context, who farm.Identity, sum string) (farm.Bytes, error) {
	if err := c.mayUpload(ctx, who, sum); err != nil {
		return 0, err
	}
	return c.received(sum)
}

func (c *Catalogue) mayUpload(ctx context.Context, who farm.Identity, sum string) error {
	if err := c.allowed(ctx, who, "to upload"); err != nil {
		return err
	}
	if _, err := c.Files(); err != nil {
		return err
	}
	if !isSum(sum) {
		return badImage("invalid checksum %.80q: a SHA-256 in hex", sum)
	}
	return nil
}

func (c *Catalogue) received(sum string) (farm.Bytes, error) {
	info, err := os.Stat(filepath.Join(c.upload(sum), uploadData))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return farm.Bytes(info.Size()), nil
}

// Receive takes the next piece of a file that has size bytes. It goes behind what has come; a piece that came already
// is passed over, for its answer may have been lost. It returns how much is there. When that is all, the file is read
// again, and removed unless it has its checksum.
func (c *Catalogue) Receive(ctx context.Context, who farm.Identity, sum string, at, size farm.Bytes,
	piece []byte) (farm.Bytes, error) {
	if err := c.mayUpload(ctx, who, sum); err != nil {
		return 0, err
	}
	c.uploading.Lock()
	defer c.uploading.Unlock()
	there, err := c.received(sum)
	if err != nil {
		return 0, err
	}
	end := at + farm.Bytes(len(piece))
	switch {
	case at > there:
		return there, badUpload("%d bytes have come, and this piece begins at %d", there, at)
	case end > size || there > size:
		return there, badUpload("the file has %d bytes, and %d would come", size, max(end, there))
	case end <= there:
		return there, nil
	}
	if err := c.fits(size - there); err != nil {
		return there, err
	}
	if there == 0 {
		if err := c.beginUpload(sum); err != nil {
			return 0, err
		}
	}
	if err := c.append(sum, there, piece[there-at:]); err != nil {
		return there, err
	}
	if end < size {
		return end, nil
	}
	return end, c.whole(ctx, sum)
}

// fits refuses an upload of which more is to come than there is room. Each piece names the size of the whole, and may
// name another than the one before.
func (c *Catalogue) fits(more farm.Bytes) error {
	room, err := c.room()
	if err == nil && c.Limit > 0 && more > room {
		err = c.full(max(c.Limit-room+more, c.Limit)) // a size may wrap around
	}
	return err
}

// beginUpload makes the directory of a file.
func (c *Catalogue) beginUpload(sum string) error {
	all, err := os.ReadDir(filepath.Join(c.Dir, uploadsDir))
	if err == nil && len(all) >= mostUploads {
		err = badUpload("%d uploads are begun", len(all))
	}
	if err != nil {
		return err
	}
	return os.MkdirAll(c.upload(sum), 0o700)
}

// append writes behind what has come; a write that fails leaves what was there.
func (c *Catalogue) append(sum string, at farm.Bytes, piece []byte) error {
	f, err := os.OpenFile(filepath.Join(c.upload(sum), uploadData), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(piece, int64(at))
	if err != nil {
		err = errors.Join(&farm.Error{Kind: farm.NoCapacity, Code: farm.CodeDiskFull,
			Message: "the piece cannot be written to " + c.Dir, Hint: "free space there, and go on", Err: err},
			f.Truncate(int64(at)))
	}
	return errors.Join(err, f.Close())
}

// whole refuses a file that is not what it was announced as, and removes it.
func (c *Catalogue) whole(ctx context.Context, sum string) error {
	f, err := os.Open(filepath.Join(c.upload(sum), uploadData))
	if errors.Is(err, fs.ErrNotExist) {
		return badUpload("file %.16s was not uploaded", sum)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := vmimage.SumOf(ctx, f)
	if err != nil || got == sum {
		return err
	}
	os.RemoveAll(c.upload(sum))
	return badUpload("the file that came has checksum %.16s, not %.16s, and was removed", got, sum)
}

// uploaded is what files take that have come.
func (c *Catalogue) uploaded() (n farm.Bytes) {
	filepath.WalkDir(filepath.Join(c.Dir, uploadsDir), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += farm.Bytes(info.Size())
		}
		return nil
	})
	return n
}

// sweepUploads removes what nobody continued, and what one left that was killed.
func (c *Catalogue) sweepUploads() error {
	c.uploading.Lock()
	defer c.uploading.Unlock()
	left, err := filepath.Glob(filepath.Join(c.Dir, "parts-*"))
	if err != nil {
		return err
	}
	uploads, err := filepath.Glob(filepath.Join(c.Dir, uploadsDir, "*"))
	for _, dir := range uploads {
		info, gone := os.Stat(filepath.Join(dir, uploadData))
		if gone != nil {
			info, gone = os.Stat(dir)
		}
		if gone == nil && c.Now().Sub(info.ModTime()) > uploadAge {
			left = append(left, dir)
		}
	}
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
