package main

import (
	"context"
	"flag"
	"fmt"
)

func watch(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%w: watch takes no arguments", errUsage)
		}
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		for c, err := range s.Watch(ctx) {
			if err != nil {
				return err
			}
			if a.json {
				if err := a.line(c); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(a.stdout, "%s %-8s %s %s → %s\n", c.At.Local().Format("15:04:05"), c.Kind, plain(c.ID), orDash(c.From), orDash(c.To))
		}
		return nil
	}
}
