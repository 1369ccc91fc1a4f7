package main

import (
	"context"
	"flag"
	"fmt"
)

func watch(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		a.tip("Watching for changes and exits, until interrupted.")
		for c, err := range s.Watch(ctx) {
			if err != nil {
				return err
			}
			c.At = c.At.UTC()
			if a.json {
				err = a.line(c)
			} else {
				_, err = fmt.Fprintf(a.stdout, "%s  %-8s %s  %s → %s\n", c.At.Local().Format("15:04:05"), c.Kind, plain(c.ID), orDash(c.From), orDash(c.To))
			}
			if err != nil {
				return err // whoever reads has left
			}
		}
		return nil
	}
}
