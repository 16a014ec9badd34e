/** Asks before something that cannot be undone. */
export interface Question {
  title: string;
  text: string;
  action: string;
  answer: (yes: boolean) => void;
}

class Confirmation {
  question = $state.raw<Question | null>(null);

  ask(title: string, text: string, action: string): Promise<boolean> {
    return new Promise((resolve) => {
      this.question = {
        title, text, action,
        answer: (yes) => {
          this.question = null;
          resolve(yes);
        },
      };
    });
  }
}

export const confirmation = new Confirmation();
