/** Asks before something that cannot be undone. */
export interface Question {
  title: string;
  text: string;
  action: string;
  /** Something else that is done too, if it is chosen. */
  option?: string;
  answer: (answer: Answer) => void;
}

export interface Answer { yes: boolean; option: boolean }

class Confirmation {
  question = $state.raw<Question | null>(null);

  async ask(title: string, text: string, action: string): Promise<boolean> {
    return (await this.choose({ title, text, action })).yes;
  }

  choose(question: Omit<Question, 'answer'>): Promise<Answer> {
    return new Promise((resolve) => {
      this.question = {
        ...question,
        answer: (answer) => {
          this.question = null;
          resolve(answer);
        },
      };
    });
  }
}

export const confirmation = new Confirmation();
