package condorlab

import "context"

// Prepare makes the Debian tree that Start needs, if there is none yet. It takes minutes.
func Prepare(ctx context.Context) error {
	_, err := tree(ctx)
	return err
}
