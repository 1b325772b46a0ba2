package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// ImageClient has the requests about the catalogue of images.
type ImageClient struct{ client *Client }

// List lists the images of the catalogue, and those that hosts have of their own.
func (i ImageClient) List(ctx context.Context) ([]Image, error) {
	images, _, err := all[Image](ctx, i.client, "/v1/images", nil)
	return images, err
}

func imagePath(ref string) string { return "/v1/images/" + url.PathEscape(ref) }

// Get looks one up, by name, digest, or the first digits of a digest.
func (i ImageClient) Get(ctx context.Context, ref string) (ImageDetails, error) {
	return call[ImageDetails](ctx, i.client, request{method: "GET", path: imagePath(ref)})
}

// Mark deprecates, withdraws or activates an image.
func (i ImageClient) Mark(ctx context.Context, ref string, m ImageMark) (ImageDetails, error) {
	return call[ImageDetails](ctx, i.client, request{method: "POST", path: imagePath(ref) + "/mark", body: m})
}

// Tag gives an image a name, which another one may have had.
func (i ImageClient) Tag(ctx context.Context, ref, name string) (ImageDetails, error) {
	return call[ImageDetails](ctx, i.client,
		request{method: "POST", path: imagePath(ref) + "/tag", body: ImageTag{name}})
}

// Remove takes a name away, and with the last one the image.
func (i ImageClient) Remove(ctx context.Context, ref string) error {
	_, err := call[ImageDetails](ctx, i.client, request{method: "DELETE", path: imagePath(ref)})
	return err
}

// Add adds an image, and tells progress each step. It may take hours; the same request goes on where one broke off.
func (i ImageClient) Add(ctx context.Context, r ImageRequest, progress func(message string)) (ImageDetails, error) {
	response, err := i.client.do(ctx, request{method: "POST", path: "/v1/images", body: r})
	if err != nil {
		return ImageDetails{}, err
	}
	defer response.Body.Close()
	for lines := json.NewDecoder(response.Body); ; {
		var e ImageEvent
		if err := lines.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return ImageDetails{}, fmt.Errorf("the server broke off: %w; the same command goes on from there", err)
		}
		switch {
		case e.Problem != nil:
			return ImageDetails{}, e.Problem
		case e.Image != nil:
			return *e.Image, nil
		default:
			progress(e.Message)
		}
	}
}

// Upload brings a file of size bytes with a SHA-256, in hex, to the server, behind what came before. progress is told
// how much is there.
func (i ImageClient) Upload(ctx context.Context, f io.ReaderAt, sum string, size int64,
	progress func(done int64)) error {
	path := "/v1/image-uploads/" + sum
	at, err := call[Upload](ctx, i.client, request{method: "GET", path: path})
	if err != nil {
		return err
	}
	piece := make([]byte, UploadPiece)
	for again := true; again; again = int64(at.Received) < size {
		progress(int64(at.Received))
		from := min(int64(at.Received), size)
		if from == size { // it came whole: the server says whether it is there
			from = max(0, size-1)
		}
		n, err := f.ReadAt(piece[:min(size-from, UploadPiece)], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		before := at.Received
		if at, err = i.put(ctx, path, from, size, piece[:n]); err != nil {
			return err
		}
		if at.Received <= before && int64(at.Received) < size {
			return fmt.Errorf("the server has %d bytes of %d, and takes no more", at.Received, size)
		}
	}
	progress(size)
	return nil
}

func (i ImageClient) put(ctx context.Context, path string, at, size int64, piece []byte) (up Upload, err error) {
	query := url.Values{"offset": {strconv.FormatInt(at, 10)}, "size": {strconv.FormatInt(size, 10)}}
	r, err := http.NewRequestWithContext(ctx, "PUT", i.client.base+path+"?"+query.Encode(), bytes.NewReader(piece))
	if err != nil {
		return up, err
	}
	request{}.headers(r.Header)
	r.Header.Set("Content-Type", "application/octet-stream")
	response, err := i.client.Do(r)
	if err != nil {
		return up, err
	}
	defer response.Body.Close()
	return up, json.NewDecoder(response.Body).Decode(&up)
}

// Prestage has hosts fetch an image before anything starts from it.
func (i ImageClient) Prestage(ctx context.Context, r ImageRollout) (Rollout, error) {
	return call[Rollout](ctx, i.client, request{method: "POST", path: "/v1/images:prestage", body: r})
}

// Invalidate has hosts remove all versions of images.
func (i ImageClient) Invalidate(ctx context.Context, r ImageRollout) (Rollout, error) {
	return call[Rollout](ctx, i.client, request{method: "POST", path: "/v1/images:invalidate", body: r})
}

// Rollout is how far hosts are.
func (i ImageClient) Rollout(ctx context.Context, id string) (Rollout, error) {
	return call[Rollout](ctx, i.client, request{method: "GET", path: "/v1/image-rollouts/" + url.PathEscape(id)})
}
